//! Notifies callers that wait for an end or an answer: directly if it was committed in this process, through the
//! wake-up path if it was committed in another.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{Command, CommandId, InstanceId};
use abide_kernel::{Effects, Ending, Error, Listener, Result, Store};
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// A kind of thing that a caller can wait for.
pub(crate) trait Watched: Send + Sync + 'static {
    type Id: Copy + Ord + Hash + Send + Sync;
    type Outcome: Clone + Send;

    /// Looks up these ids. Returns an entry for each one that has ended or is answered, and `None` for one that does
    /// not exist.
    fn read<'a>(store: &'a dyn Store, ids: &'a [Self::Id]) -> BoxFuture<'a, Result<Seen<Self>>>;

    /// Returns the ids that a commit names.
    fn named(effects: &Effects) -> &[Self::Id];
}

/// The result of looking up ids.
type Seen<K> = Vec<(<K as Watched>::Id, Option<<K as Watched>::Outcome>)>;

/// The ends of instances.
pub(crate) struct Ends;

impl Watched for Ends {
    type Id = InstanceId;
    type Outcome = Ending;

    fn read<'a>(store: &'a dyn Store, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Seen<Self>>> {
        Box::pin(async move {
            let (ended, gone) = store.endings(ids).await?;
            let ended = ended.into_iter().map(|ending| (ending.id, Some(ending)));
            Ok(ended.chain(gone.into_iter().map(|id| (id, None))).collect())
        })
    }

    fn named(effects: &Effects) -> &[InstanceId] {
        &effects.ended
    }
}

/// The answers to updates.
pub(crate) struct Replies;

impl Watched for Replies {
    type Id = CommandId;
    type Outcome = Command;

    fn read<'a>(store: &'a dyn Store, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Seen<Self>>> {
        Box::pin(async move {
            let found = store.records(ids).await?;
            let gone = ids
                .iter()
                .filter(|id| found.iter().all(|record| record.id != **id))
                .map(|id| (*id, None))
                .collect::<Vec<_>>();
            let answered = found
                .into_iter()
                .filter(|record| !record.status.is_pending())
                .map(|record| (record.id, Some(record)));
            Ok(answered.chain(gone).collect())
        })
    }

    fn named(effects: &Effects) -> &[CommandId] {
        &effects.answered
    }
}

struct Waiter<K: Watched> {
    id: K::Id,
    reply: oneshot::Sender<Option<K::Outcome>>,
}

/// The waiting callers, by the id that they wait for.
type Waiting<K> =
    HashMap<<K as Watched>::Id, Vec<oneshot::Sender<Option<<K as Watched>::Outcome>>>>;

/// Interval of the poll that backs up the notifications.
const POLL: Duration = Duration::from_secs(2);
/// Time to gather notifications of other processes before a look-up.
const GATHER: Duration = Duration::from_millis(5);

/// A handle on the task that watches.
pub(crate) struct Watch<K: Watched>(mpsc::UnboundedSender<Waiter<K>>);

impl<K: Watched> Clone for Watch<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Watched> Watch<K> {
    pub fn begin(store: Arc<dyn Store>) -> Self {
        let (sender, waiters) = mpsc::unbounded_channel();
        let notifications = store.listen();
        tokio::spawn(watch::<K>(store, notifications, waiters));
        Self(sender)
    }

    /// Waits for the end or the answer of one id. Returns `None` if it does not exist (any more).
    pub async fn of(&self, id: K::Id) -> Result<Option<K::Outcome>> {
        let (reply, receiver) = oneshot::channel();
        self.0
            .send(Waiter { id, reply })
            .map_err(|_| Error::Closed)?;
        receiver.await.map_err(|_| Error::Closed)
    }
}

async fn watch<K: Watched>(
    store: Arc<dyn Store>,
    mut notifications: Listener,
    mut waiters: mpsc::UnboundedReceiver<Waiter<K>>,
) {
    let mut waiting: Waiting<K> = HashMap::new();
    let mut ids_to_read: Vec<K::Id> = Vec::new();
    // The interval is not counted from the last event: where much happens, the poll would never run.
    let mut next_poll = Instant::now() + POLL;
    loop {
        tokio::select! {
            waiter = waiters.recv() => match waiter {
                Some(waiter) => {
                    // It may have ended before anyone waited for it, so the first look-up is at once.
                    ids_to_read.push(waiter.id);
                    waiting.entry(waiter.id).or_default().push(waiter.reply);
                    while let Ok(waiter) = waiters.try_recv() {
                        ids_to_read.push(waiter.id);
                        waiting.entry(waiter.id).or_default().push(waiter.reply);
                    }
                }
                None => return,
            },
            effects = notifications.next() => match effects {
                Some(effects) if waiting.is_empty() => drop(effects),
                Some(effects) => hear::<K>(&effects, &waiting, &mut ids_to_read).await,
                None => return,
            },
            () = tokio::time::sleep_until(next_poll), if !waiting.is_empty() => {
                next_poll = Instant::now() + POLL;
                waiting.retain(|_, replies| {
                    replies.retain(|reply| !reply.is_closed());
                    !replies.is_empty()
                });
                ids_to_read.extend(waiting.keys());
            }
        }
        if !ids_to_read.is_empty() {
            ids_to_read.sort_unstable();
            ids_to_read.dedup();
            match K::read(&*store, &ids_to_read).await {
                Ok(seen) => {
                    for (id, outcome) in seen {
                        for reply in waiting.remove(&id).unwrap_or_default() {
                            // Fails only if the caller has stopped waiting.
                            let _ = reply.send(outcome.clone());
                        }
                    }
                }
                // Present and later callers get `Error::Closed`, because the channels close.
                Err(Error::Closed) => return,
                Err(error) => tracing::warn!(%error, "results cannot be read; looking again later"),
            }
            ids_to_read.clear();
        }
    }
}

async fn hear<K: Watched>(effects: &Effects, waiting: &Waiting<K>, ids_to_read: &mut Vec<K::Id>) {
    if effects.ended_elsewhere || effects.anything {
        tokio::time::sleep(GATHER).await;
        ids_to_read.extend(waiting.keys());
    } else {
        let named = K::named(effects).iter().copied();
        ids_to_read.extend(named.filter(|id| waiting.contains_key(id)));
    }
}
