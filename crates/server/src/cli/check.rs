//! `abide check`: what is open and cannot go on with the workers that are running.

use std::collections::{BTreeMap, BTreeSet};

use abide::client::Description;
use abide::model::{Name, Worker};
use abide::store::Filter;
use abide::{Abide, Status};
use abide_kernel::model::AT_ONCE;
use abide_kernel::rules::liveness::serves;
use serde::Serialize;
use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Result};
use super::table::{Table, fixed, shrinking};
use super::text::counted;

/// The newest instances of each status that are examined.
const EXAMINED_MAX: usize = 10_000;

/// List blocked instances, by build, and instances that no worker has code for
///
/// Looks at the newest 10,000 instances that are scheduled and as many that are runnable, and at the workers that are running. It
/// does not have your code, so it cannot tell whether a build that is not running fits: ask that build, with `engine.check()`.
/// Exits with 1 when it finds something. It changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide check\n",
    "  abide check --json | jq -r '.unfit[] | \"\\(.machine) \\(.step) \\(.count)\"'"
))]
pub struct Args {}

/// Blocked instances with the same problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    machine: Name,
    version: u32,
    step: Name,
    liveness: &'static str,
    builds: Vec<Name>,
}

/// Instances with the same problem, and the newest of them.
#[derive(Serialize)]
struct Found {
    machine: Name,
    version: u32,
    step: Name,
    liveness: &'static str,
    /// The builds that could not run it.
    builds: Vec<Name>,
    /// The builds of the workers that run and have code for it.
    running: BTreeSet<Name>,
    count: u64,
    /// The newest of them.
    instance: abide::InstanceId,
    reason: String,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let out = context.out;
        let workers = abide.workers().await?;
        let mut found: BTreeMap<Kind, Found> = BTreeMap::new();
        let mut examined = 0;
        for status in [Status::Scheduled, Status::Runnable] {
            examined += gather(&abide, status, &workers, &mut found).await?;
        }
        let well = found.is_empty();
        if out.json {
            let unfit: Vec<&Found> = found.values().collect();
            out.document(&json!({"looked_at": examined, "unfit": unfit}))?;
        } else if !well {
            let mut table = Table::new([
                fixed("count"),
                shrinking("machine"),
                shrinking("step"),
                fixed("liveness"),
                shrinking("not with builds"),
                shrinking("running builds"),
                fixed("newest"),
            ]);
            for one in found.values() {
                table.row([
                    one.count.to_string(),
                    format!("{} v{}", one.machine, one.version),
                    one.step.to_string(),
                    one.liveness.replace('_', " "),
                    listed(&one.builds),
                    listed(&one.running),
                    one.instance.to_string(),
                ]);
            }
            table.print(&out)?;
        }
        let examined = counted(examined as u64, "instance", "instances");
        if well {
            out.say(&format!(
                "{examined} looked at: nothing is blocked, and all have a worker"
            ));
            return Ok(Exit::Done);
        }
        let count = found.values().map(|one| one.count).sum();
        let count = counted(count, "instance", "instances");
        out.say(&format!(
            "{examined} looked at: {count} cannot go on with the workers that are running"
        ));
        if let Some(first) = found.values().next() {
            out.say(&format!("for the reason: abide show {}", first.instance));
        }
        Ok(Exit::Refused)
    }
}

/// Gathers what cannot go on among the newest instances of a status. Returns the number of examined instances.
async fn gather(
    abide: &Abide,
    status: Status,
    workers: &[Worker],
    found: &mut BTreeMap<Kind, Found>,
) -> Result<usize> {
    let filter = Filter {
        status: Some(status),
        ..Filter::default()
    };
    let (mut before, mut examined) = (None, 0);
    while examined < EXAMINED_MAX {
        let page = abide.describe_page(&filter, before, AT_ONCE).await?;
        examined += page.items.len();
        let stuck = page.items.into_iter();
        for description in stuck.filter(|one| one.liveness.needs_worker()) {
            note(description, workers, found);
        }
        match page.next {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    Ok(examined)
}

fn note(description: Description, workers: &[Worker], found: &mut BTreeMap<Kind, Found>) {
    let one = description.instance;
    let kind = Kind {
        machine: one.machine.clone(),
        version: one.version,
        step: one.step.clone(),
        liveness: description.liveness.name(),
        builds: one.unfit.clone(),
    };
    let alike = found.entry(kind).or_insert_with(|| {
        let running = workers.iter().filter(|worker| serves(worker, &one));
        Found {
            running: running.map(|worker| worker.build().clone()).collect(),
            instance: one.id,
            machine: one.row.machine,
            version: one.version,
            step: one.row.step,
            liveness: description.liveness.name(),
            builds: one.row.unfit,
            count: 0,
            reason: description
                .reason
                .map(|reason| reason.text)
                .unwrap_or_default(),
        }
    });
    alike.count += 1;
}

fn listed<'n>(builds: impl IntoIterator<Item = &'n Name>) -> String {
    let builds: Vec<&str> = builds.into_iter().map(Name::as_str).collect();
    match builds.is_empty() {
        true => "-".to_owned(),
        false => builds.join(", "),
    }
}
