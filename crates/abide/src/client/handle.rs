//! A handle on one instance.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_core::model::{Entry, Instance, InstanceId, Key, Status};
use abide_core::rules::liveness::{Code, Reason};
use abide_kernel::{Ending, Filter, newest_run};
use serde::de::DeserializeOwned;

use super::Client;
use crate::Error;

/// Time to wait for an end before checking whether any worker can run the instance.
const UNSERVED_AFTER: Duration = Duration::from_secs(10);

/// A handle on one instance, with the type of its result.
pub struct Handle<O> {
    client: Client,
    id: InstanceId,
    key: Option<Key>,
    new: bool,
    output: PhantomData<fn() -> O>,
}

/// The reason why there is no result.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NotDone {
    /// The instance failed.
    #[error("instance {id} failed: {error}")]
    Failed {
        /// The id of the instance.
        id: InstanceId,
        /// The error that it failed with.
        error: String,
    },
    /// The instance was cancelled, or continues in a newer run.
    #[error("instance {id} ended as {status} and has no result")]
    Ended {
        /// The id of the instance.
        id: InstanceId,
        /// The status that it ended with.
        status: Status,
    },
    /// There is no such instance: it never existed, or it was deleted after its retention period.
    #[error(
        "there is no instance {id} (any more): finished ones are deleted when their retention is over"
    )]
    Gone {
        /// The id of the instance.
        id: InstanceId,
    },
    /// The instance could not be read.
    #[error(transparent)]
    Error(#[from] Error),
}

impl<O> Handle<O> {
    pub(crate) fn new(client: Client, id: InstanceId, key: Option<Key>, new: bool) -> Self {
        Self {
            client,
            id,
            key,
            new,
            output: PhantomData,
        }
    }

    /// The id of the instance.
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// The key of the instance.
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// `true` if this start created the instance, `false` if it existed before.
    pub const fn is_new(&self) -> bool {
        self.new
    }

    /// Returns the instance as it is now, or `None` if it was deleted. Without a key, this is the newest run of its
    /// chain.
    pub async fn get(&self) -> Result<Option<Instance>, Error> {
        Ok(newest_run(&*self.client.store, &self.id.into()).await?)
    }

    /// Returns the run with which a chain goes on after a run that continued as new: the first later one that did not
    /// itself continue as new.
    async fn next_run(&self, id: InstanceId) -> Result<Option<InstanceId>, Error> {
        let store = &self.client.store;
        let Some(run) = store.get(&id.into()).await? else {
            return Ok(None);
        };
        let filter = Filter {
            chain: Some(run.chain()),
            ..Filter::default()
        };
        let mut before = None;
        let mut next = None;
        loop {
            // Pages are newest first, so the last match is the first in time.
            let page = store.list(&filter, before, 100).await?;
            for one in page.items {
                if one.id <= id {
                    return Ok(next);
                }
                if one.status != Status::Continued {
                    next = Some(one.id);
                }
            }
            before = page.next;
            if before.is_none() {
                return Ok(next);
            }
        }
    }

    /// Waits until the instance has ended, and returns how it ended. Follows a run that continues as new. Without a
    /// key, also follows a restart, because the id then refers to the newest run of its chain.
    pub async fn ended(&self) -> Result<Ending, NotDone> {
        let mut id = self.id;
        loop {
            let ended = tokio::select! {
                ended = self.client.endings.of(id) => ended.map_err(Error::from)?,
                never = self.warn_of_no_worker(id) => match never {},
            };
            let next = match ended.as_ref().map(|ending| ending.status) {
                // rule 2.4: the chain's last run is its end.
                Some(Status::Continued) => self.next_run(id).await?,
                Some(Status::Done) => None,
                _ => self.restarted_as(id).await?,
            };
            match (next, ended) {
                (Some(next), _) => id = next,
                (None, Some(ending)) if ending.status != Status::Continued => return Ok(ending),
                (None, _) => return Err(NotDone::Gone { id }),
            }
        }
    }

    /// Returns the newest run of a chain without a key, if that is another run (rule 2.5).
    async fn restarted_as(&self, id: InstanceId) -> Result<Option<InstanceId>, Error> {
        if self.key.is_some() {
            return Ok(None);
        }
        let newest = newest_run(&*self.client.store, &id.into()).await?;
        let newest = newest.map(|run| run.id);
        Ok(newest.filter(|newest| *newest != id))
    }

    /// Logs a warning once, after a wait of some time, if no worker can run the instance or its children. However many
    /// calls wait, one of them checks in that time.
    async fn warn_of_no_worker(&self, id: InstanceId) -> Infallible {
        let clock = self.client.store.clock();
        clock.sleep_until(clock.now() + UNSERVED_AFTER).await;
        let (now, before) = (clock.now(), clock.now() - UNSERVED_AFTER);
        let last = &self.client.checked_for_worker;
        let is_mine = last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
            (last <= before.as_micros()).then_some(now.as_micros())
        });
        if is_mine.is_err() {
            return std::future::pending().await;
        }
        let unserved =
            |reason: &Reason| matches!(reason.code, Code::NoWorker | Code::ChildrenUnserved);
        // If the store is unavailable, the wait continues without a warning.
        let described = abide_kernel::describe(&*self.client.store, &id.into()).await;
        if let Ok(Some((_, health))) = described
            && let Some(reason) = health.reason.filter(unserved)
        {
            tracing::warn!(instance = %id, "the end of instance {id} is waited for, but {}", reason.text);
        }
        std::future::pending().await
    }

    /// Returns all history events of the instance.
    pub async fn history(&self) -> Result<Vec<Entry>, Error> {
        crate::history::read(&*self.client.store, self.id).await
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits until the instance has ended, and returns its result. Follows a run that continues as new and, without a
    /// key, a restart too.
    ///
    /// An end in this process is pushed; an end in another process arrives as a notification. All waits of one `Abide`
    /// share one query every 2 s, in case a notification was lost. If the database becomes unavailable meanwhile, the
    /// wait continues.
    pub async fn result(&self) -> Result<O, NotDone> {
        let ending = self.ended().await?;
        let id = ending.id;
        match (ending.status, ending.result) {
            (Status::Done, Some(result)) => result.to().map_err(|error| {
                NotDone::Error(Error::Mismatch {
                    what: "the result",
                    problem: error.to_string(),
                })
            }),
            (Status::Failed, _) => Err(NotDone::Failed {
                id,
                error: ending.last_error.unwrap_or_default(),
            }),
            (status, _) => Err(NotDone::Ended { id, status }),
        }
    }
}

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("new", &self.new)
            .finish()
    }
}
