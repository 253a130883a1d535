//! `abide doctor`: checks every instance for violated invariants.

use abide::model::Liveness;
use abide::store::{Filter, Tally};
use abide::{Abide, Status};
use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Result};
use super::table::{Table, fixed, wrapping};
use super::text::counted;

/// Check every instance for violated invariants
///
/// Exits with 1 when it finds something. In a store that only abide has written to, it finds nothing. It takes short locks
/// and may run while everything works.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide doctor\n",
    "  abide doctor --json | jq -r '.findings[].instance' | xargs -n1 abide repair"
))]
pub struct Args {}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let out = context.out;
        out.progress("looking at every instance …");
        let seen = abide.doctor().await;
        out.progress_ends();
        let seen = seen?;
        let tally = abide.tally().await?;
        let well = seen.findings.is_empty();
        if out.json {
            out.document(&json!({
                "examined": seen.examined,
                "findings": seen.findings,
                "blocked": tally.blocked,
                "failing": tally.failing,
                "ended": tally.ended,
            }))?;
        } else if !well {
            let mut table = Table::new([fixed("instance"), fixed("code"), wrapping("problem")]);
            for finding in &seen.findings {
                table.row([
                    finding.instance.to_string(),
                    finding.code.clone(),
                    finding.problem.clone(),
                ]);
            }
            table.print(&out)?;
        }
        let examined = counted(seen.examined as u64, "instance", "instances");
        let refused = abide.outbox_depth().await?.refused;
        if refused > 0 {
            // They are not instances, and nothing is broken: these requests could not be carried out.
            let requests = counted(refused, "request", "requests");
            out.say(&format!(
                "the outbox refused {requests}; to see why: abide outbox"
            ));
        }
        if !out.json {
            counts(&tally).iter().for_each(|line| out.say(line));
        }
        if well {
            out.say(&format!("{examined} looked at: nothing is wrong"));
            if !out.json && is_any_unserved(&abide).await? {
                out.say("some could run, and no live worker has code for them: abide list --liveness waiting_for_worker");
            }
            return Ok(Exit::Done);
        }
        let wrong = counted(seen.findings.len() as u64, "problem", "problems");
        out.say(&format!("{examined} looked at: {wrong}"));
        if let Some(first) = seen.findings.first() {
            out.say(&format!("try: abide repair {}", first.instance));
        }
        Ok(Exit::Refused)
    }
}

/// How many are blocked, failing or ended, and the commands that list them: none of that is anything to repair.
fn counts(tally: &Tally) -> Vec<String> {
    let ended: u64 = tally.ended.values().sum();
    let (blocked, failing) = (tally.blocked, tally.failing);
    let mut lines = vec![format!(
        "{blocked} blocked, {failing} failing, {ended} ended"
    )];
    if blocked > 0 {
        lines.push(
            "to see which are blocked: abide list --liveness blocked,replay_blocked".to_owned(),
        );
    }
    if failing > 0 {
        lines.push("to see which are failing: abide list --failing".to_owned());
    }
    lines
}

/// `true` if one of the newest instances waits for a worker.
async fn is_any_unserved(abide: &Abide) -> Result<bool> {
    let ready = Filter {
        status: Some(Status::Runnable),
        ..Filter::default()
    };
    let page = abide.describe_page(&ready, None, 1_000).await?;
    let mut descriptions = page.items.iter();
    Ok(descriptions.any(|description| description.liveness == Liveness::WaitingForWorker))
}
