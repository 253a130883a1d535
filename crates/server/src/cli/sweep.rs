//! `abide sweep`: deletes finished instances now.

use std::time::{Duration, Instant};

use abide_kernel::SweepPass;
use serde_json::json;

use super::context::{Context, now};
use super::failure::{Exit, Result};
use super::text::counted;
use super::times::{length, parse_length};

/// Delete finished instances and everything that belongs to them
///
/// Workers and servers do this by themselves when their retention is over; this is for doing it now.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide sweep\n",
    "  abide sweep --older-than 1d"
))]
pub struct Args {
    /// Only instances that finished longer ago than this
    #[arg(long, value_name = "TIME", value_parser = parse_length, default_value = "7d")]
    older_than: Duration,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let out = context.out;
        let before = now(&abide) - self.older_than;
        let mut pass = SweepPass::new(before, None);
        loop {
            let begun = Instant::now();
            let answers = abide.store().run([pass.batch()].into()).await?;
            let took = begun.elapsed();
            if !pass.note(&answers, took).map_err(abide::Error::from)? {
                break;
            }
            out.progress(&format!("{} deleted …", pass.deleted()));
            tokio::time::sleep(took).await;
        }
        let deleted = pass.deleted();
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
