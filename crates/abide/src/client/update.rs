//! Builders that send updates, and handles that wait for their answers.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use abide_core::model::{Command, CommandId, CommandStatus, Name, NewCommand, Refusal};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::signal::receipt;
use super::{Address, Client, Receipt, SendError, first};
use crate::Error;
use crate::message::SentUpdate;

/// Default time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A builder of an update, returned by [`Abide::update`](crate::Abide::update). Await it for the answer, or send it
/// with [`accepted`](Self::accepted) and fetch the answer later.
#[must_use = "nothing is sent before it is awaited"]
pub struct UpdateBuilder<R> {
    delivery: Result<NewCommand, Error>,
    client: Client,
    patience: Duration,
    result: PhantomData<fn() -> R>,
}

impl<R> UpdateBuilder<R> {
    pub(crate) fn new<S: SentUpdate<Answer = R>>(
        to: impl Address,
        update: S,
        value: S::Value<'_>,
        client: Client,
    ) -> Self {
        let delivery = || -> Result<NewCommand, Error> {
            let arguments = update.encode(value);
            let arguments = arguments.map_err(|error| Error::Mismatch {
                what: "the value of the update",
                problem: error.to_string(),
            })?;
            Ok(NewCommand {
                arguments,
                ..NewCommand::update(to.target()?, update.update_name()?)
            })
        };
        Self {
            delivery: delivery(),
            client,
            patience: PATIENCE,
            result: PhantomData,
        }
    }

    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut NewCommand, T)) -> Self {
        match (&mut self.delivery, value) {
            (Ok(delivery), Ok(value)) => set(delivery, value),
            (Ok(_), Err(refusal)) => self.delivery = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// Sets the request id. An update that is sent again with the same id is the same update, with the same answer.
    pub fn request_id(self, id: impl AsRef<str>) -> Self {
        self.with(Name::new(id), |delivery, value| {
            delivery.dedup_key = Some(value)
        })
    }

    /// Sets the sender, for the record. A server records the identity of the caller as the source, and this value as
    /// `claimed_source`, which may have at most 255 bytes.
    pub fn source(self, source: impl Into<String>) -> Self {
        self.with(Ok(source.into()), |delivery, value| {
            delivery.source = Some(value)
        })
    }

    /// Sets how long to wait for the answer; 30 s by default. After that the update is still answered, and its answer
    /// can be fetched by its id.
    pub fn within_time(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Sends the update without waiting for the answer.
    pub async fn accepted(self) -> Result<UpdateHandle<R>, SendError> {
        let delivery = self.delivery?;
        let target = delivery.target.clone();
        let answer = self.client.deliver(vec![delivery]).await.and_then(first);
        let receipt = receipt(answer.map_err(Error::from)?, target)?;
        Ok(UpdateHandle {
            id: receipt.id(),
            receipt: Some(receipt),
            client: self.client,
            result: PhantomData,
        })
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for UpdateBuilder<R> {
    type Output = Result<R, UpdateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Sends the update and waits for the answer.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let patience = self.patience;
            self.accepted().await?.answer_within(patience).await
        })
    }
}

/// A handle on an update that was accepted.
pub struct UpdateHandle<R> {
    id: CommandId,
    receipt: Option<Receipt>,
    client: Client,
    result: PhantomData<fn() -> R>,
}

impl<R> UpdateHandle<R> {
    pub(crate) fn of(id: CommandId, client: Client) -> Self {
        Self {
            id,
            receipt: None,
            client,
            result: PhantomData,
        }
    }

    /// The id of the update, by which its answer can be fetched later.
    pub const fn id(&self) -> CommandId {
        self.id
    }

    /// The receipt; `None` if the update was only looked up by its id.
    pub const fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// Waits until the update is answered, and returns its record, or `None` if it was deleted with its instance.
    pub async fn closed(&self) -> Result<Option<Command>, Error> {
        Ok(self.client.answers.of(self.id).await?)
    }

    /// Returns the record of the update as it is now, or `None` if it was deleted with its instance.
    pub async fn record(&self) -> Result<Option<Command>, Error> {
        let records = self.client.store.records(&[self.id]).await?;
        Ok(records.into_iter().next())
    }
}

impl<R: DeserializeOwned> UpdateHandle<R> {
    /// Waits for the answer without a time limit.
    pub async fn answer(&self) -> Result<R, UpdateError> {
        let record = self.client.answers.of(self.id).await.map_err(Error::from)?;
        let record = record.ok_or(UpdateError::Gone { id: self.id })?;
        match (record.status, record.result) {
            (CommandStatus::Completed, result) => {
                result.unwrap_or_default().to().map_err(|error| {
                    UpdateError::Error(Error::Mismatch {
                        what: "the answer to the update",
                        problem: error.to_string(),
                    })
                })
            }
            _ => Err(UpdateError::Failed {
                id: self.id,
                error: record.error.unwrap_or_default(),
            }),
        }
    }

    /// Waits for the answer, for at most `time`.
    pub async fn answer_within(&self, time: Duration) -> Result<R, UpdateError> {
        tokio::time::timeout(time, self.answer())
            .await
            .unwrap_or(Err(UpdateError::NotYet { id: self.id }))
    }
}

/// The reason why there is no answer to an update.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The update was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Its handler failed, or the instance ended first. The update changed nothing, except for what an `async` handler
    /// of a workflow changed before it failed.
    #[error("update {id} failed: {error}")]
    Failed {
        /// The update.
        id: CommandId,
        /// The error.
        error: String,
    },
    /// The update was accepted but is not answered yet; fetch the answer later by its id.
    #[error("update {id} is not answered yet: ask for it later by its id")]
    NotYet {
        /// The update.
        id: CommandId,
    },
    /// There is no such update: it was deleted with its instance.
    #[error(
        "there is no update {id} (any more): it is deleted with its instance when the retention is over"
    )]
    Gone {
        /// The update.
        id: CommandId,
    },
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}
