//! `abide export`: a run with its history, as a file.

use super::context::{Context, found};
use super::failure::{Exit, Failure, Result};
use super::text::counted;

/// Print a run with its history, as JSON
///
/// That is all that is needed to replay a workflow elsewhere, in a test of its new code say.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide export order:42 > order-42.json\n",
    "  abide export order:42 --to tests/histories/order-42.json"
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// The file to write, in place of standard output
    #[arg(long, value_name = "FILE")]
    to: Option<std::path::PathBuf>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let one = found(&abide, &self.target).await?;
        let gone = || Failure::nothing_at(&self.target);
        let run = abide.export(one.id).await?.ok_or_else(gone)?;
        if run.history.is_empty() {
            context
                .out
                .say("it keeps no history, so that there is little to see");
        }
        let Some(path) = self.to else {
            // States are kept exactly as they are written.
            let text = match context.out.json {
                true => serde_json::to_string(&run),
                false => serde_json::to_string_pretty(&run),
            };
            let text = text.map_err(|error| abide::Error::Broken(error.to_string()))?;
            context.out.line(&text)?;
            return Ok(Exit::Done);
        };
        run.to_file(&path).map_err(|error| {
            let text = format!("{} cannot be written: {error}", path.display());
            Failure::new(Exit::Refused, "output", text)
                .next("the same with another file, or with > and no --to")
        })?;
        let events = counted(run.history.len() as u64, "event", "events");
        context
            .out
            .say(&format!("{events} written to {}", path.display()));
        Ok(Exit::Done)
    }
}
