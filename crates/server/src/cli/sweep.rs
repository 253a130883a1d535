//! `abide sweep`: deletes finished instances now.

use std::time::Duration;

use abide_kernel::{Answer, Op, SweepRequest};
use serde_json::json;

use super::context::{Context, now};
use super::failure::{Exit, Result};
use super::moments::{length, parse_length};
use super::text::counted;

/// Delete finished instances with all that belongs to them
///
/// Workers and servers do this by themselves when their retention is over; this is for doing it now.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide sweep\n",
    "  abide sweep --older-than 1d"
))]
pub struct Args {
    /// Those that finished longer ago than that
    #[arg(long, value_name = "TIME", value_parser = parse_length, default_value = "7d")]
    older_than: Duration,
}

/// How many are deleted in one transaction.
const BATCH: usize = 500;

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.look().await?;
        let out = context.out;
        let before = now(&abide) - self.older_than;
        let (mut deleted, mut after) = (0, None);
        loop {
            let request = SweepRequest {
                before,
                after,
                limit: BATCH,
            };
            let answers = abide.store().run([Op::Sweep(request)].into()).await?;
            let Some(Answer::Swept {
                deleted: some,
                next,
            }) = answers.into_iter().next()
            else {
                return Err(abide::Error::Broken(
                    "the sweep was answered with something else".into(),
                )
                .into());
            };
            deleted += some;
            after = next;
            if after.is_none() {
                break;
            }
            out.progress(&format!("{deleted} deleted …"));
        }
        out.progress_ends();
        match out.json {
            true => out.document(&json!({"deleted": deleted}))?,
            false => out.line(&format!(
                "{} deleted that had finished more than {} ago",
                counted(deleted as u64, "instance", "instances"),
                length(self.older_than)
            ))?,
        }
        Ok(Exit::Done)
    }
}
