//! `abide result`: the result of an instance.

use std::time::Duration;

use abide::model::{Instance, Json};
use abide::{Abide, Status};

use super::context::{Context, current};
use super::failure::{Exit, Failure, Result};
use super::health::name_of;
use super::text::pretty;
use super::times::parse_length;
use crate::http::instances::ResultView;

/// Print the result of an instance
///
/// Exits with 0 when it is done; with 1 when it failed, was cancelled, or has not ended.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide result order:42\n",
    "  abide result order:42 --wait\n",
    "  abide result order:42 --wait=30s --json"
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// Wait until it has ended, or for this long
    #[arg(long, value_name = "TIME", value_parser = parse_length, num_args = 0..=1, require_equals = true)]
    wait: Option<Option<Duration>>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let mut one = current(&abide, &self.target).await?;
        if let Some(patience) = self.wait {
            let ended = ended(&abide, &one);
            match patience {
                Some(patience) => match tokio::time::timeout(patience, ended).await {
                    Ok(ended) => one = ended?,
                    Err(_) => one = current(&abide, &self.target).await?,
                },
                None => one = ended.await?,
            }
        }
        let (out, name) = (context.out, name_of(&one));
        let answer = ResultView::from(one.clone());
        if one.status == Status::Done {
            match (out.json, &one.result) {
                (true, _) => out.document(&answer)?,
                (false, result) => {
                    out.line(&pretty(result.clone().unwrap_or_default().as_str()))?
                }
            }
            return Ok(Exit::Done);
        }
        let failure = |kind: &str, text: String| {
            let mut failure = Failure::new(Exit::Refused, kind, text);
            failure.document = serde_json::to_value(&answer).ok();
            failure
        };
        let error = one.last_error.clone().unwrap_or_default();
        Err(match one.status {
            Status::Failed => failure("failed", format!("instance {} failed: {error}", one.id))
                .next(format!(
                    "abide restart {name}      (a new run, with its last state)"
                )),
            status if status.is_terminal() => failure(
                "ended",
                format!(
                    "instance {} ended as {status} and has no result: {error}",
                    one.id
                ),
            )
            .next(format!("abide show {name}")),
            status => failure(
                "not_yet",
                format!("instance {} has not ended: it is {status}", one.id),
            )
            .next(format!("abide result {name} --wait")),
        })
    }
}

/// Waits until an instance, and whatever its chain goes on with, has ended.
async fn ended(abide: &Abide, one: &Instance) -> Result<Instance> {
    let gone = || Failure::nothing_at(&one.id.to_string());
    let handle = abide.handle::<Json>(one.id).await?.ok_or_else(gone)?;
    match handle.ended().await {
        Ok(ending) => abide.get(ending.id).await?.ok_or_else(gone),
        Err(abide::client::NotDone::Error(error)) => Err(error.into()),
        Err(_) => Err(gone()),
    }
}

/// The newest run of an instance's chain.
pub async fn newest(abide: &Abide, one: &Instance) -> Result<Option<Instance>> {
    let filter = abide::store::Filter {
        chain: Some(one.chain()),
        ..abide::store::Filter::default()
    };
    Ok(abide.list(&filter, None, 1).await?.items.into_iter().next())
}
