//! `abide list`: instances, newest first.

use abide::client::Description;
use abide::model::{Liveness, Name, WaitKind};
use abide::store::{Filter, Page};
use abide::{Abide, Status};
use abide_kernel::rules::liveness::is_failing;

use super::context::{Context, found, now};
use super::failure::{Exit, Failure, Result};
use super::paging::{Listed, Paging, remark};
use super::show::{resumed_by, waiters};
use super::table::{Table, fixed, shrinking};
use super::text::counted;
use super::times::relative;
use crate::http::dto::InstanceView;

/// List instances, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide list --status failed\n",
    "  abide list --liveness blocked,replay_blocked\n",
    "  abide list --machine checkout --waiting-for payment_confirmed --limit 200\n",
    "  abide list --key-prefix order: --all --json | jq -r '.items[].key'"
))]
pub struct Args {
    /// Only instances with this status
    #[arg(long, value_parser = ["reserved", "scheduled", "runnable", "executing", "awaiting_signal", "awaiting_children",
        "done", "failed", "cancelled", "continued"])]
    status: Option<String>,
    /// Only instances of this machine
    #[arg(long)]
    machine: Option<String>,
    /// Only instances in this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only instances whose key begins with this text
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only instances with this kind of wait
    #[arg(long, value_parser = ["signal", "event", "condition", "timer", "children"])]
    wait_kind: Option<String>,
    /// Only instances that wait for the signal with this name, or for events of this type
    #[arg(long, value_name = "NAME")]
    waiting_for: Option<String>,
    /// Only instances with this liveness, such as waiting_for_worker or repair_needed; separate several with commas
    #[arg(long, value_delimiter = ',', value_parser = ["closed", "running", "ready", "scheduled", "waiting_for_signal", "waiting_for_event",
        "waiting_for_condition", "waiting_for_children", "waiting_for_worker", "replay_blocked", "blocked", "repair_needed"])]
    liveness: Vec<String>,
    /// Only failing instances: a step has failed more than three times in a row
    #[arg(long)]
    failing: bool,
    /// Only children of this instance
    #[arg(long, value_name = "TARGET")]
    parent: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let filter = self.filter(&abide).await?;
        let listed = self
            .paging
            .gather("instances", async |before, limit| {
                let page = abide.describe_page(&filter, before, limit).await?;
                Ok(Page {
                    items: page
                        .items
                        .into_iter()
                        .filter(|description| self.wants(description))
                        .collect(),
                    next: page.next,
                })
            })
            .await?;
        let out = context.out;
        if out.json {
            let mut items = Vec::new();
            for description in listed.items {
                let waiters = waiters(&abide, &description).await?;
                items.push(InstanceView::new(description, waiters));
            }
            out.document(&Listed {
                items,
                next_cursor: listed.next_cursor,
            })?;
        } else {
            print(context, &abide, &listed)?;
            remark(&out, &listed, "no instances match");
        }
        Ok(Exit::Done)
    }

    /// `true` if an instance has the requested liveness, by which the store cannot select.
    fn wants(&self, description: &Description) -> bool {
        let name = description.liveness.name();
        let is_so = self.liveness.is_empty() || self.liveness.iter().any(|wanted| wanted == name);
        is_so && (!self.failing || is_failing(&description.instance))
    }

    async fn filter(&self, abide: &Abide) -> Result<Filter> {
        let name = |text: &Option<String>| text.as_ref().map(Name::new).transpose();
        let parent = match &self.parent {
            Some(parent) => Some(found(abide, parent).await?.id),
            None => None,
        };
        let status = self.status.as_ref().map(|status| status.parse::<Status>());
        Ok(Filter {
            status: status
                .transpose()
                .map_err(|error| Failure::usage(error.to_string()))?,
            machine: name(&self.machine)?,
            queue: name(&self.queue)?,
            key_prefix: self.key_prefix.clone(),
            parent,
            chain: None,
            wait_kind: self.wait_kind.as_deref().and_then(WaitKind::named),
            waiting_for: name(&self.waiting_for)?,
        })
    }
}

/// Prints instances as a table.
pub fn print(context: &Context, abide: &Abide, listed: &Listed<Description>) -> Result<()> {
    if listed.items.is_empty() {
        return Ok(());
    }
    let now = now(abide);
    let mut table = Table::new([
        fixed("id"),
        shrinking("key"),
        shrinking("machine").leaves(3),
        shrinking("step").leaves(2),
        fixed("status"),
        shrinking("waits for").leaves(4),
        fixed("updated").leaves(5),
    ]);
    for description in &listed.items {
        let one = &description.instance;
        table.row([
            one.id.to_string(),
            one.key
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string),
            format!("{} v{}", one.machine, one.version),
            one.step.to_string(),
            one.status.to_string(),
            waits_for(description, now),
            relative(one.updated_at, now),
        ]);
    }
    table.print(&context.out)
}

fn waits_for(description: &Description, now: abide::time::Timestamp) -> String {
    match description.liveness {
        Liveness::WaitingForWorker => return "a worker".to_owned(),
        unwell @ (Liveness::ReplayBlocked | Liveness::Blocked | Liveness::RepairNeeded) => {
            return unwell.name().replace('_', " ");
        }
        _ => {}
    }
    let Some(wait) = &description.wait else {
        return "-".to_owned();
    };
    if let Some(source) = wait.resume_source {
        return format!("woken by {}", resumed_by(source));
    }
    let names: Vec<&str> = wait
        .names
        .iter()
        .map(|name| name.event_type().unwrap_or(name.as_str()))
        .collect();
    let what = match wait.kind {
        WaitKind::Children => counted(
            u64::from(description.instance.family.needed),
            "child",
            "children",
        ),
        WaitKind::Timer => "time".to_owned(),
        kind => format!("{} {}", kind.name(), names.join(", ")),
    };
    match wait.deadline {
        Some(deadline) => format!("{what}, {}", relative(deadline, now)),
        None => what,
    }
}
