//! `abide cancel`, `abide restart`, `abide repair`: operations on one instance.

use serde_json::json;

use super::context::{Context, found, target_of};
use super::failure::{Exit, Result, not_operated, shell_quoted};
use super::text::counted;
use crate::http::starts::StartedView;

/// Cancel an instance, and its children with it
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide cancel order:42 --reason \"the customer left\"\n",
    "  abide cancel order:42 --leave-children"
))]
pub struct Cancel {
    /// An id, or a key
    target: String,
    /// The reason, for the record
    #[arg(long, default_value = "cancelled from the command line")]
    reason: String,
    /// Leave its children as they are
    #[arg(long)]
    leave_children: bool,
    /// End a workflow at once, without letting its code clean up
    #[arg(long)]
    force: bool,
}

impl Cancel {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let target = target_of(&self.target)?;
        let abide = context.open_existing().await?;
        let mut cancelling = abide.cancel(target, self.reason).source("cli");
        if self.leave_children {
            cancelling = cancelling.leave_children();
        }
        if self.force {
            cancelling = cancelling.force();
        }
        let done = cancelling
            .await
            .map_err(|error| not_operated(error, &self.target))?;
        let outcome = if done.ended {
            "cancelled"
        } else {
            "cancelling"
        };
        let out = context.out;
        if out.json {
            out.document(&json!({"outcome": outcome, "id": done.id, "children": done.children}))?;
            return Ok(Exit::Done);
        }
        let children = match done.children {
            0 => String::new(),
            count => format!(
                ", and {} with it",
                counted(count as u64, "child", "children")
            ),
        };
        out.line(&format!("{outcome}: instance {}{children}", done.id))?;
        if !done.ended {
            let name = shell_quoted(&self.target);
            out.say(&format!(
                "its code cleans up first; to look on: abide watch {name}"
            ));
        }
        Ok(Exit::Done)
    }
}

/// Open a new run of an instance that failed or was cancelled, with its last state, and print its id
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide restart order:42\n",
    "  abide restart order:42 --step charge"
))]
pub struct Restart {
    /// An id, or a key
    target: String,
    /// The step to begin at [default: the step where it ended]
    #[arg(long)]
    step: Option<String>,
}

impl Restart {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let target = target_of(&self.target)?;
        let abide = context.open_existing().await?;
        let mut restarting = abide.restart(target);
        if let Some(step) = &self.step {
            restarting = restarting.at(step);
        }
        let id = restarting
            .await
            .map_err(|error| not_operated(error, &self.target))?;
        let run = found(&abide, &id.to_string()).await?;
        let run_number = run.run.number;
        let out = context.out;
        if out.json {
            out.document(&StartedView::from(run))?;
            return Ok(Exit::Done);
        }
        out.line(&id.to_string())?;
        out.say(&format!(
            "run {run_number} is open; to look on: abide watch {id}"
        ));
        Ok(Exit::Done)
    }
}

/// Repair an instance; safe on a healthy one
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide repair order:42\n",
    "  abide doctor            (finds all that need it)"
))]
pub struct Repair {
    /// An id, or a key
    target: String,
}

impl Repair {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let target = target_of(&self.target)?;
        let abide = context.open_existing().await?;
        let repaired = abide
            .repair(target)
            .await
            .map_err(|error| not_operated(error, &self.target))?;
        let outcome = if repaired {
            "repair_dispatched"
        } else {
            "repair_not_needed"
        };
        match context.out.json {
            true => context.out.document(&json!({"outcome": outcome}))?,
            false => context.out.line(outcome)?,
        }
        Ok(Exit::Done)
    }
}
