//! `abide waits`: the open waits of instances.

use abide::client::WaitsFilter;
use abide::model::{Condition as EventCondition, WaitKind, Waiter};

use super::context::{Context, found, now};
use super::failure::{Exit, Result};
use super::paging::{Paging, remark};
use super::table::{Table, fixed, shrinking};
use super::text::{clean, cut};
use super::times::relative;
use crate::http::waits::OpenWaitView;

/// List open waits: for signals, events and conditions, since when and until when
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide waits --kind signal --name payment_confirmed\n",
    "  abide waits --key-prefix order: --all"
))]
pub struct Args {
    /// Only waits of this kind
    #[arg(long, value_parser = ["signal", "event", "condition"])]
    kind: Option<String>,
    /// Only waits for this signal, or for events of this type
    #[arg(long)]
    name: Option<String>,
    /// Only waits of instances whose key begins with this text
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only waits of this instance
    #[arg(long, value_name = "TARGET")]
    instance: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let instance = match &self.instance {
            Some(target) => Some(found(&abide, target).await?.id),
            None => None,
        };
        let filter = WaitsFilter {
            kind: self.kind.as_deref().and_then(WaitKind::named),
            name: self.name.clone(),
            key_prefix: self.key_prefix.clone(),
            instance,
        };
        let listed = self
            .paging
            .gather("waits", async |before, limit| {
                Ok(abide.waits(&filter, before, limit).await?)
            })
            .await?;
        let out = context.out;
        if out.json {
            out.document(&listed.map(OpenWaitView::from))?;
            return Ok(Exit::Done);
        }
        if !listed.items.is_empty() {
            let now = now(&abide);
            let mut table = Table::new([
                fixed("instance"),
                shrinking("key").leaves(2),
                fixed("kind").leaves(3),
                shrinking("name"),
                shrinking("where").leaves(4),
                fixed("since").leaves(5),
                fixed("deadline"),
            ]);
            for wait in &listed.items {
                let when = |moment: Option<abide::time::Timestamp>| {
                    moment.map_or_else(|| "-".to_owned(), |moment| relative(moment, now))
                };
                table.row([
                    wait.instance.to_string(),
                    wait.key
                        .as_ref()
                        .map_or_else(|| "-".to_owned(), ToString::to_string),
                    wait.kind.name().to_owned(),
                    match wait.name.is_empty() {
                        true => "-".to_owned(),
                        false => wait.name.clone(),
                    },
                    match wait.conditions.is_empty() {
                        true => "-".to_owned(),
                        false => conditions_text(&wait.conditions),
                    },
                    when(wait.since),
                    when(wait.deadline),
                ]);
            }
            table.print(&out)?;
        }
        remark(&out, &listed, "no waits match");
        Ok(Exit::Done)
    }
}

/// An event and its conditions, as text.
pub fn event_text(waiter: &Waiter) -> String {
    let kind = clean(waiter.event_type.as_str()).into_owned();
    match waiter.conditions.is_empty() {
        true => kind,
        false => format!(
            "{kind} where {}",
            cut(&conditions_text(&waiter.conditions), 300)
        ),
    }
}

/// The conditions on an event, in words.
fn conditions_text(conditions: &[EventCondition]) -> String {
    let texts = conditions.iter().map(|condition| {
        let right = condition.right.as_str();
        clean(&format!(
            "{} {} {right}",
            condition.left.as_str(),
            condition.op
        ))
        .into_owned()
    });
    texts.collect::<Vec<_>>().join(" and ")
}
