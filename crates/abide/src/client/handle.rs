//! A handle on one instance.

use std::marker::PhantomData;

use abide_core::model::{Entry, Instance, InstanceId, Key, Status};
use abide_kernel::{Ending, Filter, newest_run};
use serde::de::DeserializeOwned;

use super::Client;
use crate::Error;

/// A handle on one instance, which knows what it comes to.
pub struct Handle<O> {
    client: Client,
    id: InstanceId,
    key: Option<Key>,
    new: bool,
    output: PhantomData<fn() -> O>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotDone {
    /// The instance failed.
    #[error("instance {id} failed: {error}")]
    Failed {
        /// The instance.
        id: InstanceId,
        /// What it failed of.
        error: String,
    },
    /// The instance was cancelled, or goes on in a newer run.
    #[error("instance {id} ended as {status} and has no result")]
    Ended {
        /// The instance.
        id: InstanceId,
        /// How it ended.
        status: Status,
    },
    /// There is no such instance: its retention is over, or it never was.
    #[error(
        "there is no instance {id} (any more): finished ones are deleted when their retention is over"
    )]
    Gone {
        /// The instance.
        id: InstanceId,
    },
    /// It could not be read.
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

    /// The instance.
    pub const fn id(&self) -> InstanceId {
        self.id
    }

    /// Its key.
    pub const fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Whether this start made it, or it was there before.
    pub const fn is_new(&self) -> bool {
        self.new
    }

    /// The instance as it stands now; `None` when it has been deleted. Without a key it is the newest run of its chain.
    pub async fn get(&self) -> Result<Option<Instance>, Error> {
        Ok(newest_run(&*self.client.store, &self.id.into()).await?)
    }

    /// The run that a chain goes on with after one that continued as new: the first that did not do so itself.
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
            // Newest first: of those that are found, the last is the first in time.
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

    /// Waits until the instance has ended, and answers how; one that continues as new is followed.
    pub async fn ended(&self) -> Result<Ending, NotDone> {
        let mut id = self.id;
        loop {
            let ending = self.client.endings.of(id).await.map_err(Error::from)?;
            let ending = ending.ok_or(NotDone::Gone { id })?;
            if ending.status != Status::Continued {
                return Ok(ending);
            }
            // rule 2.4: the chain's last run is its end.
            id = self.next_run(id).await?.ok_or(NotDone::Gone { id })?;
        }
    }

    /// All that has happened to it.
    pub async fn history(&self) -> Result<Vec<Entry>, Error> {
        crate::history::read(&*self.client.store, self.id).await
    }
}

impl<O: DeserializeOwned> Handle<O> {
    /// Waits until the instance has ended, and answers what it came to; one that continues as new is followed.
    ///
    /// Pushed when it ends in this process, noticed when it ends in another. Waiting costs the database nothing. A
    /// database that goes away meanwhile is waited for.
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
