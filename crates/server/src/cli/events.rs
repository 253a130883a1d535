//! `abide events`: the stored events.

use abide::model::Name;
use abide::store::EventFilter;

use super::context::{Context, now};
use super::failure::{Exit, Result};
use super::paging::{Paging, remark};
use super::table::{Table, fixed, shrinking};
use super::times::relative;

/// List the stored events, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide events\n",
    "  abide events --type payment.received --limit 5 --json"
))]
pub struct Args {
    /// Only events of this type
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let filter = EventFilter {
            event_type: self.event_type.as_ref().map(Name::new).transpose()?,
        };
        let abide = context.open_existing().await?;
        let listed = self
            .paging
            .gather("events", async |before, limit| {
                Ok(abide.events(&filter, before, limit).await?)
            })
            .await?;
        let out = context.out;
        if out.json {
            out.document(&listed)?;
            return Ok(Exit::Done);
        }
        if !listed.items.is_empty() {
            let now = now(&abide);
            let mut table = Table::new([
                fixed("sequence").leaves(3),
                shrinking("type"),
                shrinking("event id").leaves(1),
                shrinking("payload"),
                fixed("published").leaves(2),
            ]);
            for event in &listed.items {
                table.row([
                    event.sequence.to_string(),
                    event.event_type.to_string(),
                    event.event_id.to_string(),
                    event.payload.to_string(),
                    relative(event.published_at, now),
                ]);
            }
            table.print(&out)?;
        }
        remark(&out, &listed, "no events match");
        Ok(Exit::Done)
    }
}
