//! Sending updates, and waiting for their answers.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::Duration;

use abide_core::model::{Arguments, Command, CommandId, CommandStatus, Delivery, Name, Refusal};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::signal::receipt;
use super::{Address, Client, Receipt, SendError, first};
use crate::Error;
use crate::message::Update;

/// How long an answer is waited for unless the call says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// An update to send: made by [`Abide::update`](crate::Abide::update), and then awaited for its answer, or sent with
/// [`accepted`](Self::accepted) and asked for later.
#[must_use = "nothing is sent before it is awaited"]
pub struct Request<R> {
    delivery: Result<Delivery, Error>,
    client: Client,
    patience: Duration,
    result: PhantomData<fn() -> R>,
}

impl<R> Request<R> {
    pub(crate) fn new<A>(to: impl Address, update: Update<A, R>, value: &A, client: Client) -> Self
    where
        A: Serialize + JsonSchema + 'static,
    {
        let arguments = update.arguments(value).map_err(|error| Error::Mismatch {
            what: "what the update is sent with",
            problem: error.to_string(),
        });
        Self::named(to, update.name(), arguments, client)
    }

    pub(crate) fn named(
        to: impl Address,
        name: &str,
        arguments: Result<Arguments, Error>,
        client: Client,
    ) -> Self {
        let delivery = || -> Result<Delivery, Error> {
            Ok(Delivery {
                arguments: arguments?,
                ..Delivery::update(to.target()?, Name::new(name)?)
            })
        };
        Self {
            delivery: delivery(),
            client,
            patience: PATIENCE,
            result: PhantomData,
        }
    }

    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut Delivery, T)) -> Self {
        match (&mut self.delivery, value) {
            (Ok(delivery), Ok(value)) => set(delivery, value),
            (Ok(_), Err(refusal)) => self.delivery = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// What tells it from others: sent again with the same, it is the same update, with the same answer.
    pub fn request_id(self, id: impl AsRef<str>) -> Self {
        self.with(Name::new(id), |delivery, value| {
            delivery.dedup_key = Some(value)
        })
    }

    /// Who sends it, for the record. A server that keeps the store records who the caller is, and this beside it, as
    /// `claimed_source`: at most 255 bytes then.
    pub fn source(self, source: impl Into<String>) -> Self {
        self.with(Ok(source.into()), |delivery, value| {
            delivery.source = Some(value)
        })
    }

    /// How long to wait for the answer; 30 s unless given. The update is answered all the same, and its answer can be
    /// asked for by its id.
    pub fn within_time(mut self, time: Duration) -> Self {
        self.patience = time;
        self
    }

    /// Sends it, and does not wait for the answer.
    pub async fn accepted(self) -> Result<Asked<R>, SendError> {
        let answer = self
            .client
            .deliver(vec![self.delivery?])
            .await
            .and_then(first);
        let receipt = receipt(answer.map_err(Error::from)?)?;
        Ok(Asked {
            id: receipt.id(),
            receipt: Some(receipt),
            client: self.client,
            result: PhantomData,
        })
    }
}

impl<R: DeserializeOwned + 'static> IntoFuture for Request<R> {
    type Output = Result<R, UpdateError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Sends it, and waits for the answer.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let patience = self.patience;
            self.accepted().await?.answer_within(patience).await
        })
    }
}

/// An update that was accepted.
pub struct Asked<R> {
    id: CommandId,
    receipt: Option<Receipt>,
    client: Client,
    result: PhantomData<fn() -> R>,
}

impl<R> Asked<R> {
    pub(crate) fn of(id: CommandId, client: Client) -> Self {
        Self {
            id,
            receipt: None,
            client,
            result: PhantomData,
        }
    }

    /// Its id, by which its answer can be asked for later.
    pub const fn id(&self) -> CommandId {
        self.id
    }

    /// What the sender was told; none when it was only asked for by its id.
    pub const fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_ref()
    }

    /// Waits until it is answered, and gives its record; none when it was deleted with its instance.
    pub async fn closed(&self) -> Result<Option<Command>, Error> {
        Ok(self.client.answers.of(self.id).await?)
    }

    /// Its record as it stands now; none when it was deleted with its instance.
    pub async fn record(&self) -> Result<Option<Command>, Error> {
        let records = self.client.store.records(&[self.id]).await?;
        Ok(records.into_iter().next())
    }
}

impl<R: DeserializeOwned> Asked<R> {
    /// Waits for the answer, as long as it takes.
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

    /// Waits for the answer, for that long at most.
    pub async fn answer_within(&self, time: Duration) -> Result<R, UpdateError> {
        tokio::time::timeout(time, self.answer())
            .await
            .unwrap_or(Err(UpdateError::NotYet { id: self.id }))
    }
}

/// Why there is no answer to an update.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// It was not accepted.
    #[error(transparent)]
    Send(#[from] SendError),
    /// Its handler failed, or the instance ended first. Nothing was changed by it.
    #[error("update {id} failed: {error}")]
    Failed {
        /// The update.
        id: CommandId,
        /// Why.
        error: String,
    },
    /// It was accepted, and is not answered yet: ask again by its id.
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
    /// Anything else.
    #[error(transparent)]
    Error(#[from] Error),
}
