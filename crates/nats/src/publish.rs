//! Publishes held messages, and decides how to acknowledge each.

use abide::model::{Published, Refusal};
use abide::store::Backoff;
use abide::{Abide, Error};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::message::NewEvent;

/// The result for a message.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is a committed event.
    Published {
        /// `true` if it was an event before.
        duplicate: bool,
    },
    /// It can never become an event, for this reason.
    Hopeless(String),
    /// Nothing was written, for this reason: it must be delivered again.
    Later(String),
}

impl Verdict {
    fn of(answer: Result<Published, Refusal>) -> Self {
        match answer {
            Ok(published) => Self::Published {
                duplicate: published.duplicate,
            },
            Err(refusal) => Self::Hopeless(refusal.to_string()),
        }
    }
}

/// Abide was closed: nothing can be published any more.
#[derive(Debug)]
pub(crate) struct Closed;

/// Publishes events in one transaction, and retries while the database is unavailable: they have ids, so a commit whose
/// answer was lost is safe to repeat. It does not retry after `stop`. A transaction that is refused as a whole is
/// retried in halves, so that one event does not stop the others.
pub(crate) fn publish<'a>(
    abide: &'a Abide,
    events: &'a [&'a NewEvent],
    stop: &'a CancellationToken,
) -> BoxFuture<'a, Result<Vec<Verdict>, Closed>> {
    Box::pin(async move {
        let mut backoff = Backoff::away();
        loop {
            let answer = abide.publish_all(events.iter().map(|event| event.publication()));
            let error = match answer.await {
                Ok(answers) => return Ok(answers.into_iter().map(Verdict::of).collect()),
                Err(error) => error,
            };
            match error {
                Error::Closed => return Err(Closed),
                Error::Unavailable(_) | Error::Unknown(_) => {}
                _ if events.len() > 1 => {
                    let (left, right) = events.split_at(events.len() / 2);
                    let mut verdicts = publish(abide, left, stop).await?;
                    verdicts.extend(publish(abide, right, stop).await?);
                    return Ok(verdicts);
                }
                Error::Refused(_) | Error::Mismatch { .. } => {
                    return Ok(vec![Verdict::Hopeless(error.to_string())]);
                }
                // An operator must repair the database; the message waits for that.
                error => return Ok(vec![Verdict::Later(error.to_string())]),
            }
            tracing::warn!(%error, events = events.len(), "the database is unavailable: trying again");
            let is_stopped = stop.run_until_cancelled(backoff.pause()).await;
            if is_stopped.is_none() {
                let later = || Verdict::Later(error.to_string());
                return Ok(events.iter().map(|_| later()).collect());
            }
        }
    })
}
