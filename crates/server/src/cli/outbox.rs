//! `abide outbox`: the depth of the outbox, its refused requests, and the operations on them.

use abide::outbox::OutboxId;
use serde_json::json;

use super::context::{Context, now};
use super::failure::{Exit, Failure, Result};
use super::paging::{Paging, remark};
use super::table::{Table, fixed, shrinking, wrapping};
use super::text::counted;
use super::times::relative;
use crate::http::outbox::RefusedView;

/// List the requests of the outbox that were refused, newest first, and say how many wait
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = concat!(
    "Examples:\n",
    "  abide outbox\n",
    "  abide outbox --json | jq -r '.items[].request'\n",
    "  abide outbox retry 7 8\n",
    "  abide outbox discard 9"
))]
pub struct Args {
    #[command(subcommand)]
    command: Option<Settle>,
    #[command(flatten)]
    paging: Paging,
}

#[derive(Debug, clap::Subcommand)]
enum Settle {
    /// Put refused requests back at the end of the outbox, so that they are taken again
    Retry(Ids),
    /// Delete refused requests
    Discard(Ids),
}

#[derive(Debug, clap::Args)]
struct Ids {
    /// Ids of refused requests
    #[arg(required = true, value_name = "ID")]
    ids: Vec<i64>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        match self.command {
            Some(Settle::Retry(Ids { ids })) => settle(context, &ids, true).await,
            Some(Settle::Discard(Ids { ids })) => settle(context, &ids, false).await,
            None => list(context, &self.paging).await,
        }
    }
}

async fn list(context: &Context, paging: &Paging) -> Result {
    let abide = context.open_existing().await?;
    let depth = abide.outbox_depth().await?;
    let listed = paging
        .gather("refused", async |before, limit| {
            Ok(abide.refused_requests(before, limit).await?)
        })
        .await?;
    let out = context.out;
    if out.json {
        out.document(&listed.map(RefusedView::from))?;
        return Ok(Exit::Done);
    }
    let now = now(&abide);
    if !listed.items.is_empty() {
        let mut table = Table::new([
            fixed("id"),
            fixed("reason"),
            shrinking("request").leaves(1),
            fixed("refused").leaves(2),
            wrapping("problem"),
        ]);
        for one in &listed.items {
            table.row([
                one.id.to_string(),
                one.problem.reason.to_string(),
                one.request.clone(),
                relative(one.refused_at, now),
                one.problem.problem.clone(),
            ]);
        }
        table.print(&out)?;
    }
    remark(&out, &listed, "no request of the outbox was refused");
    if let Some(oldest) = depth.oldest {
        let waiting = counted(depth.waiting, "request waits", "requests wait");
        out.say(&format!(
            "{waiting} in the outbox, the first inserted {}",
            relative(oldest, now)
        ));
    }
    Ok(Exit::Done)
}

async fn settle(context: &Context, ids: &[i64], again: bool) -> Result {
    let abide = context.open_existing().await?;
    let which: Vec<OutboxId> = ids.iter().copied().map(OutboxId).collect();
    let (found, outcome) = match again {
        true => (abide.retry_refused(&which).await?, "requeued"),
        false => (abide.discard_refused(&which).await?, "discarded"),
    };
    if found == 0 {
        let text = "no refused request has such an id: it was retried or discarded, or its retention is over";
        return Err(Failure::new(Exit::Refused, "no_such_request", text).next("abide outbox"));
    }
    let out = context.out;
    if out.json {
        out.document(&json!({"outcome": outcome, "count": found}))?;
    } else {
        out.line(&format!(
            "{outcome}: {}",
            counted(found as u64, "request", "requests")
        ))?;
    }
    Ok(Exit::Done)
}
