//! The builder that sends a signal, its receipt and its errors.

use std::future::IntoFuture;
use std::time::Duration;

use abide_core::model::{
    Command, CommandId, Delivered, Exceeded, InstanceId, Name, NewCommand, Offer, Refusal,
    Rejection, Sequence, Start, Verdict,
};
use abide_core::rules::contract::ValidationErrors;
use abide_kernel::{Answer, Op, Target};
use futures_util::future::BoxFuture;

use super::{Address, Client, Within, first};
use crate::Error;
use crate::message::SentSignal;

/// A builder of a signal. [`Abide::signal`](crate::Abide::signal) returns one to configure and then await; [`new_signal`]
/// makes one for a batch.
#[must_use = "nothing is sent before it is awaited"]
pub struct SignalBuilder<C = ()> {
    pub(super) delivery: Result<NewCommand, Error>,
    pub(super) client: C,
}

/// Describes a signal to send, as one of [many](crate::Abide::signal_all).
///
/// ```
/// # use abide::Signal;
/// # use abide::client::new_signal;
/// const PAID: Signal<u32> = Signal::new("paid");
/// let signals = (0..1_000).map(|n| new_signal(format!("order:{n}"), PAID, &100).dedup(format!("payment-{n}")));
/// # let _ = signals;
/// ```
///
/// [`Abide::signal`](crate::Abide::signal) says which values it takes.
pub fn new_signal<S: SentSignal>(
    to: impl Address,
    signal: S,
    value: S::Value<'_>,
) -> SignalBuilder {
    SignalBuilder::new(to, signal, value, ())
}

impl<C> SignalBuilder<C> {
    pub(crate) fn new<S: SentSignal>(
        to: impl Address,
        signal: S,
        value: S::Value<'_>,
        client: C,
    ) -> Self {
        let delivery = || -> Result<NewCommand, Error> {
            let arguments = signal.encode(value);
            let arguments = arguments.map_err(|error| Error::Mismatch {
                what: "the value of the signal",
                problem: error.to_string(),
            })?;
            Ok(NewCommand {
                arguments,
                ..NewCommand::signal(to.target()?, signal.signal_name()?)
            })
        };
        Self {
            delivery: delivery(),
            client,
        }
    }

    pub(crate) fn with_start(mut self, start: Result<Start, Error>) -> Self {
        self.delivery = self.delivery.and_then(|delivery| {
            Ok(NewCommand {
                start: Some(Box::new(start?)),
                ..delivery
            })
        });
        self
    }

    /// Sets a field, unless an earlier value was refused.
    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut NewCommand, T)) -> Self {
        match (&mut self.delivery, value) {
            (Ok(delivery), Ok(value)) => set(delivery, value),
            (Ok(_), Err(refusal)) => self.delivery = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// Sets the dedup key. A signal that is sent again with the same key is the same signal, so it is safe to repeat.
    pub fn dedup(self, key: impl AsRef<str>) -> Self {
        self.with(Name::new(key), |delivery, value| {
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

    /// Holds the signal for that long if no instance holds the key, and delivers it to the instance that starts with
    /// that key.
    pub fn hold_for(self, time: Duration) -> Self {
        self.with(Ok(time), |delivery, value| delivery.hold_for = Some(value))
    }
}

impl From<SignalBuilder> for Result<NewCommand, Error> {
    fn from(builder: SignalBuilder) -> Self {
        builder.delivery
    }
}

impl IntoFuture for SignalBuilder<Client> {
    type Output = Result<Receipt, SendError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Sends the signal, which is durable once this returns.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let delivery = self.delivery?;
            let target = delivery.target.clone();
            let answer = self.client.deliver(vec![delivery]).await.and_then(first);
            receipt(answer.map_err(Error::from)?, target)
        })
    }
}

impl SignalBuilder<Client> {
    /// Sends the signal inside your own transaction. It exists once that commits; if that rolls back, it never existed.
    /// See [`StartBuilder::within`](super::StartBuilder::within).
    pub fn within<T: Within>(self, transaction: T) -> T::Answer<Result<Receipt, SendError>> {
        // Without a target there is a refusal instead of a delivery, and that is the answer.
        let target = self.delivery.as_ref().map(|one| one.target.clone()).ok();
        let ops = self
            .delivery
            .map(|delivery| vec![Op::Deliver(vec![delivery])]);
        transaction.run(&self.client, ops, |answers| {
            match (answers?.into_iter().next(), target) {
                (Some(Answer::Delivered(each)), Some(target)) => {
                    receipt(each.into_iter().next().ok_or(Error::Closed)?, target)
                }
                _ => Err(Error::unexpected_answer().into()),
            }
        })
    }
}

/// The receipt for a signal or an update that was accepted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// The record.
    pub record: Command,
    /// `true` if it had been accepted before.
    pub duplicate: bool,
    /// `true` if an instance was started for it.
    pub started: bool,
    /// The signal that the instance waits for, if this one was sent under a similar name. This one stays in the inbox
    /// and wakes nothing.
    pub similar: Option<Name>,
}

impl Receipt {
    /// The outcome: `signal_received`, `signal_held` or `update_accepted`.
    pub fn outcome(&self) -> &'static str {
        self.record.outcome()
    }

    /// The record's id.
    pub fn id(&self) -> CommandId {
        self.record.id
    }

    /// The message sequence in the chain of the instance; `None` while the signal is held.
    pub fn sequence(&self) -> Option<Sequence> {
        self.record.sequence
    }

    /// The run that received it; `None` while the signal is held.
    pub fn instance(&self) -> Option<InstanceId> {
        self.record.instance
    }
}

/// The reason why a signal or an update was not accepted.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No instance has that id or key.
    #[error(
        "no instance with the id or key {:?}: start it first, or use `hold_for` or `signal_with_start`",
        .0.to_string()
    )]
    NoTarget(Target),
    /// It was rejected, and the rejection is recorded.
    #[error("{}{}", .0.why, .0.problems())]
    Rejected(Box<Rejected>),
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}

impl SendError {
    /// The outcome as the decision table names it; `None` if no decision was made.
    pub fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::NoTarget(_) => Some(Verdict::NoTarget.outcome()),
            Self::Rejected(rejected) => Some(rejected.why.outcome()),
            Self::Error(_) => None,
        }
    }

    /// A stable reason code for programs; `None` if it was not rejected.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Rejected(rejected) => Some(rejected.why.reason()),
            Self::NoTarget(_) | Self::Error(_) => None,
        }
    }
}

/// A signal or an update that was rejected.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// The reason.
    pub why: Rejection,
    /// The record.
    pub record: Option<Command>,
    /// The newest run of the chain, if another run was addressed.
    pub current: Option<InstanceId>,
    /// The names that the machine declares, if this name is not one of them.
    pub offer: Option<Offer>,
    /// The limit that would have been exceeded, if that was the reason.
    pub limit: Option<Exceeded>,
}

impl Rejected {
    /// Returns all problems with the arguments.
    pub fn validation_errors(&self) -> Option<ValidationErrors> {
        self.record.as_ref()?.validation_errors.as_ref()?.to().ok()
    }

    fn problems(&self) -> String {
        let newer = self
            .current
            .map(|current| format!("; the newest is {current}"));
        let offer = self
            .offer
            .as_ref()
            .map(|offer| format!("; it declares {offer}"));
        let errors = self.validation_errors().map(|errors| format!(": {errors}"));
        let limit = self.limit.as_ref().map(|limit| format!(": {limit}"));
        [newer, offer, errors, limit]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// Converts a store's answer to the sender's result.
pub(crate) fn receipt(
    answer: Result<Delivered, Refusal>,
    target: Target,
) -> Result<Receipt, SendError> {
    let delivered = answer.map_err(Error::from)?;
    match (delivered.verdict, delivered.record) {
        (Verdict::Received | Verdict::Held | Verdict::Accepted, Some(record)) => Ok(Receipt {
            record: *record,
            duplicate: delivered.duplicate,
            started: delivered.started,
            similar: delivered.similar,
        }),
        (Verdict::Rejected(why), record) => Err(SendError::Rejected(Box::new(Rejected {
            why,
            record: record.map(|record| *record),
            current: delivered.current,
            offer: delivered.offer,
            limit: delivered.limit,
        }))),
        _ => Err(SendError::NoTarget(target)),
    }
}
