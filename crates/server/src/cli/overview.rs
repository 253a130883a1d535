//! `abide workers`, `abide queues`, `abide machines`, `abide stats`: overviews.

use abide_kernel::rules::graph::graph_of;
use std::collections::BTreeMap;

use abide::Status;
use abide::contract::Contract;
use abide::model::Kind;
use abide::store::QueueDepth;
use serde::Serialize;
use serde_json::json;

use super::context::{Context, now};
use super::failure::{Exit, Result};
use super::shapes::Machine;
use super::table::{Table, fixed, number, shrinking};
use super::times::relative;
use crate::http::stats::{WorkerView, by_queue, counts};

/// A list without pages.
#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
}

/// List the live workers
#[derive(Debug, clap::Args)]
#[command(after_help = concat!("Examples:\n", "  abide workers\n", "  abide workers --json | jq -r '.items[].name'"))]
pub struct Workers {}

impl Workers {
    /// Runs the command.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let workers = abide.workers().await?;
        let (out, now) = (context.out, now(&abide));
        if out.json {
            let items = workers.into_iter().map(WorkerView::from).collect();
            out.document(&Items { items })?;
            return Ok(Exit::Done);
        }
        if workers.is_empty() {
            out.say("no live workers: nothing runs until one is started");
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            fixed("id"),
            shrinking("name"),
            shrinking("queues").leaves(2),
            shrinking("machines").leaves(1),
            fixed("started").leaves(3),
            fixed("lease"),
        ]);
        for worker in &workers {
            let queues: Vec<&str> = worker.queues.iter().map(|queue| queue.as_str()).collect();
            let lanes: Vec<String> = worker
                .lanes
                .iter()
                .map(|lane| format!("{} v{}", lane.machine, lane.version))
                .collect();
            table.row([
                worker.id.to_string(),
                worker.name.to_string(),
                queues.join(", "),
                lanes.join(", "),
                relative(worker.started_at, now),
                match worker.lease_until > now {
                    true => format!("ends {}", relative(worker.lease_until, now)),
                    false => format!("ended {}", relative(worker.lease_until, now)),
                },
            ]);
        }
        table.print(&out)?;
        Ok(Exit::Done)
    }
}

/// List the queues: the number of instances by status in each
#[derive(Debug, clap::Args)]
#[command(after_help = concat!("Examples:\n", "  abide queues\n", "  abide queues --json"))]
pub struct Queues {}

impl Queues {
    /// Runs the command.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let depths = abide.depths().await?;
        let (out, now) = (context.out, now(&abide));
        if out.json {
            let items = by_queue(depths, now).into_values().collect();
            out.document(&Items { items })?;
            return Ok(Exit::Done);
        }
        if depths.is_empty() {
            out.say("nothing is in any queue: all that was started has ended");
            return Ok(Exit::Done);
        }
        let mut queues: BTreeMap<&str, Vec<&QueueDepth>> = BTreeMap::new();
        for depth in &depths {
            queues.entry(depth.queue.as_str()).or_default().push(depth);
        }
        let mut table = Table::new([
            shrinking("queue"),
            number("ready"),
            fixed("oldest ready"),
            number("running"),
            number("scheduled").leaves(2),
            number("waiting").leaves(1),
        ]);
        for (queue, depths) in queues {
            let count = |statuses: &[Status]| {
                let some = depths
                    .iter()
                    .filter(|depth| statuses.contains(&depth.status));
                some.map(|depth| depth.count).sum::<u64>().to_string()
            };
            let oldest = depths.iter().filter_map(|depth| depth.oldest).min();
            table.row([
                queue.to_owned(),
                count(&[Status::Runnable]),
                oldest.map_or_else(|| "-".to_owned(), |oldest| relative(oldest, now)),
                count(&[Status::Executing]),
                count(&[Status::Scheduled, Status::Reserved]),
                count(&[Status::AwaitingSignal, Status::AwaitingChildren]),
            ]);
        }
        table.print(&out)?;
        Ok(Exit::Done)
    }
}

/// List the declared machines and graphs, and the signals and updates they accept
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide machines\n",
    "  abide machines --json | jq '.items[] | select(.name == \"checkout\").signals'"
))]
pub struct Machines {}

impl Machines {
    /// Runs the command.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let out = context.out;
        let mut machines = Vec::new();
        for declared in abide.store().machines().await? {
            let contract: Contract = match declared.contract {
                Some(id) => {
                    let stored = abide.store().contract(id).await?.unwrap_or_default();
                    stored.to().unwrap_or_default()
                }
                None => Contract::default(),
            };
            machines.push((declared, contract));
        }
        if out.json {
            let items = machines.into_iter().map(Machine::from).collect();
            out.document(&Items { items })?;
            return Ok(Exit::Done);
        }
        if machines.is_empty() {
            out.say("no machine is declared: a worker declares its own when it starts");
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            shrinking("machine"),
            number("version"),
            fixed("kind").leaves(4),
            shrinking("first step").leaves(3),
            shrinking("queue").leaves(2),
            shrinking("signals"),
            shrinking("updates").leaves(1),
        ]);
        for (one, contract) in &machines {
            let names = |accepts: &[abide::contract::Accepts], none: &str| match accepts {
                [] => none.to_owned(),
                some => some
                    .iter()
                    .map(|one| one.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            };
            table.row([
                one.machine.to_string(),
                one.version.to_string(),
                match one.kind {
                    Kind::Machine => "machine".to_owned(),
                    Kind::Workflow if graph_of(one.machine.as_str()).is_some() => {
                        "graph".to_owned()
                    }
                    Kind::Workflow => "workflow".to_owned(),
                },
                one.first_step.to_string(),
                one.queue.to_string(),
                names(&contract.signals, "any"),
                names(&contract.updates, "none"),
            ]);
        }
        table.print(&out)?;
        Ok(Exit::Done)
    }
}

/// Count instances by status, blocked, failing and ended ones, and workers
#[derive(Debug, clap::Args)]
#[command(after_help = concat!("Examples:\n", "  abide stats\n", "  abide stats --json"))]
pub struct Stats {}

impl Stats {
    /// Runs the command.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let (depths, workers) = (abide.depths().await?, abide.workers().await?);
        let tally = abide.tally().await?;
        let (out, now) = (context.out, now(&abide));
        if out.json {
            let (statuses, waits) = counts(&depths);
            let queues = by_queue(depths, now).len();
            out.document(&json!({
                "version": env!("CARGO_PKG_VERSION"),
                "statuses": statuses,
                "waits": waits,
                "queues": queues,
                "workers": workers.len(),
                "blocked": tally.blocked,
                "failing": tally.failing,
                "ended": tally.ended,
            }))?;
            return Ok(Exit::Done);
        }
        let sum = |wanted: &dyn Fn(&QueueDepth) -> bool| -> u64 {
            depths
                .iter()
                .filter(|depth| wanted(depth))
                .map(|depth| depth.count)
                .sum()
        };
        let mut lines: Vec<(String, String)> =
            vec![("workers".to_owned(), workers.len().to_string())];
        for status in Status::ALL
            .into_iter()
            .filter(|status| !status.is_terminal())
        {
            lines.push((
                status.to_string(),
                sum(&|depth| depth.status == status).to_string(),
            ));
        }
        let (_, waits) = counts(&depths);
        for (kind, count) in waits {
            lines.push((format!("waiting for {kind}"), count.to_string()));
        }
        if let Some(oldest) = depths.iter().filter_map(|depth| depth.oldest).min() {
            lines.push(("oldest ready".to_owned(), relative(oldest, now)));
        }
        lines.push(("blocked".to_owned(), tally.blocked.to_string()));
        lines.push(("failing".to_owned(), tally.failing.to_string()));
        for status in Status::ALL
            .into_iter()
            .filter(|status| status.is_terminal())
        {
            let count = tally.ended.get(&status).copied().unwrap_or_default();
            lines.push((format!("ended as {status}"), count.to_string()));
        }
        for (name, value) in lines {
            out.line(&format!("{name:<22} {value:>12}"))?;
        }
        if tally.is_cut() {
            out.say("more have ended than are counted here: only a million are looked at");
        }
        Ok(Exit::Done)
    }
}
