//! Publishes what is in hand, and says what is to be answered for each message.

use abide::{Abide, Backoff, Error, Published, Refusal};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::message::NewEvent;

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It is an event, committed.
    Published {
        /// And was one before.
        duplicate: bool,
    },
    /// It can never be one, and why.
    Hopeless(String),
    /// Nothing was written, and why: it must be handed out again.
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

/// That abide was closed: nothing can be published any more.
#[derive(Debug)]
pub(crate) struct Closed;

/// Publishes events in one transaction, again and again while the database is away: they have ids, so a commit whose answer
/// was lost is safe to repeat. When it is to `stop` it does not try again. A transaction that is refused as a whole is tried
/// in halves, so that one event does not stop the others.
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
                // Somebody must mend the database: the message waits for that.
                error => return Ok(vec![Verdict::Later(error.to_string())]),
            }
            tracing::warn!(%error, events = events.len(), "the database is away: trying again");
            let is_stopped = stop.run_until_cancelled(backoff.pause()).await;
            if is_stopped.is_none() {
                let later = || Verdict::Later(error.to_string());
                return Ok(events.iter().map(|_| later()).collect());
            }
        }
    })
}
