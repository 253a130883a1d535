//! Tells those who wait for a result: pushed when the end was committed in this process, noticed through the wake-up
//! path when it was committed in another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::InstanceId;
use abide_kernel::{Effects, Ending, Error, Listener, Result, Store};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How an instance ended; `None` when there is no such instance.
type Told = Option<Ending>;

struct Waiter {
    id: InstanceId,
    reply: oneshot::Sender<Told>,
}

/// How often to look when nobody tells: the floor under the notifications.
const POLL: Duration = Duration::from_secs(2);
/// How long to gather word from other processes before looking.
const GATHER: Duration = Duration::from_millis(5);

/// A hand-over to the task that watches for ends.
#[derive(Clone)]
pub(crate) struct Endings(mpsc::UnboundedSender<Waiter>);

impl Endings {
    pub fn begin(store: Arc<dyn Store>) -> Self {
        let (sender, waiters) = mpsc::unbounded_channel();
        let news = store.listen();
        tokio::spawn(watch(store, news, waiters));
        Self(sender)
    }

    /// Waits until an instance has ended; `None` when there is no such instance (any more).
    pub async fn of(&self, id: InstanceId) -> Result<Told> {
        let (reply, told) = oneshot::channel();
        self.0
            .send(Waiter { id, reply })
            .map_err(|_| Error::Closed)?;
        told.await.map_err(|_| Error::Closed)
    }
}

async fn watch(
    store: Arc<dyn Store>,
    mut news: Listener,
    mut waiters: mpsc::UnboundedReceiver<Waiter>,
) {
    let mut waiting: HashMap<InstanceId, Vec<oneshot::Sender<Told>>> = HashMap::new();
    let mut look: Vec<InstanceId> = Vec::new();
    // Not from the last event on: where much happens, it would never come.
    let mut next_poll = Instant::now() + POLL;
    loop {
        tokio::select! {
            waiter = waiters.recv() => match waiter {
                Some(waiter) => {
                    // It may have ended before anybody waited, so the first look is at once.
                    look.push(waiter.id);
                    waiting.entry(waiter.id).or_default().push(waiter.reply);
                    while let Ok(waiter) = waiters.try_recv() {
                        look.push(waiter.id);
                        waiting.entry(waiter.id).or_default().push(waiter.reply);
                    }
                }
                None => return,
            },
            effects = news.next() => match effects {
                Some(effects) if waiting.is_empty() => drop(effects),
                Some(effects) => hear(&effects, &waiting, &mut look).await,
                None => return,
            },
            () = tokio::time::sleep_until(next_poll), if !waiting.is_empty() => {
                next_poll = Instant::now() + POLL;
                waiting.retain(|_, replies| {
                    replies.retain(|reply| !reply.is_closed());
                    !replies.is_empty()
                });
                look.extend(waiting.keys());
            }
        }
        if !look.is_empty() {
            look.sort_unstable();
            look.dedup();
            match store.endings(&look).await {
                Ok((ended, gone)) => {
                    let ended = ended.into_iter().map(|ending| (ending.id, Some(ending)));
                    for (id, told) in ended.chain(gone.into_iter().map(|id| (id, None))) {
                        for reply in waiting.remove(&id).unwrap_or_default() {
                            // Who has stopped waiting is not told.
                            let _ = reply.send(told.clone());
                        }
                    }
                }
                // Who waits, and who comes to wait, is told that the store was closed.
                Err(Error::Closed) => return,
                Err(error) => tracing::warn!(%error, "results cannot be read; looking again later"),
            }
            look.clear();
        }
    }
}

async fn hear(
    effects: &Effects,
    waiting: &HashMap<InstanceId, Vec<oneshot::Sender<Told>>>,
    look: &mut Vec<InstanceId>,
) {
    if effects.ended_elsewhere || effects.anything {
        tokio::time::sleep(GATHER).await;
        look.extend(waiting.keys());
    } else {
        look.extend(
            effects
                .ended
                .iter()
                .copied()
                .filter(|id| waiting.contains_key(id)),
        );
    }
}
