//! `abide publish`: publishes an event.

use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Result};
use super::text::{clean, counted};
use super::values::Given;

/// Publish an event: every instance whose wait it matches is woken
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide publish payment.received order_id=ord_1 amount=99.99 --id evt_7\n",
    "  abide publish payment.received @payment.json\n\n",
    "Values are name=value pairs (JSON when they read as JSON, else text; name:=json and name==text force one), or JSON."
))]
pub struct Args {
    /// The event's type
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// The payload: name=value pairs, or JSON
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// The event id: an event of the same type with the same id is the same event
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let payload = Given::read(&self.values)?.one()?.unwrap_or_default();
        let abide = context.write().await?;
        let mut event = abide.publish(&self.event_type, &payload);
        if let Some(id) = &self.id {
            event = event.event_id(id);
        }
        let published = event.await?;
        let out = context.out;
        if out.json {
            out.document(&json!({
                "event_id": published.event_id,
                "matched": published.matched,
                "duplicate": published.duplicate,
                "unmatched": published.unmatched,
            }))?;
            return Ok(Exit::Done);
        }
        let what = match published.duplicate {
            true => "had been published before".to_owned(),
            false => format!(
                "woke {}",
                counted(u64::from(published.matched), "waiter", "waiters")
            ),
        };
        out.line(&format!("{}: {what}", clean(published.event_id.as_str())))?;
        if published.unmatched {
            out.say(&format!(
                "it matches none of the waits for events of type {}; their conditions: abide waits --kind event",
                clean(&self.event_type)
            ));
        } else if published.matched == 0 && !published.duplicate {
            out.say(
                "no instance waits for events of this type; all waits: abide waits --kind event",
            );
        }
        Ok(Exit::Done)
    }
}
