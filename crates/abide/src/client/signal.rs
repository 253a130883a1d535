//! Sending signals.

use std::future::IntoFuture;
use std::time::Duration;

use abide_core::model::{
    Arguments, Command, CommandId, Delivered, Delivery, Exceeded, InstanceId, Name, Offer, Refusal,
    Rejection, Sequence, Start, Verdict,
};
use abide_core::rules::contract::ValidationErrors;
use abide_kernel::{Answer, Op};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Serialize;

use super::{Address, Client, Within, first};
use crate::Error;
use crate::message::Signal;

/// A signal to send: made by [`Abide::signal`](crate::Abide::signal), and then awaited; or by [`letter`], as one of many.
#[must_use = "nothing is sent before it is awaited"]
pub struct Letter<C = ()> {
    pub(super) delivery: Result<Delivery, Error>,
    pub(super) client: C,
}

/// A signal on its own, as one of [many](crate::Abide::signal_all).
///
/// ```
/// # use abide::{Signal, letter};
/// const PAID: Signal<u32> = Signal::new("paid");
/// let letters = (0..1_000).map(|n| letter(format!("order:{n}"), PAID, &100).dedup(format!("payment-{n}")));
/// # let _ = letters;
/// ```
pub fn letter<T>(to: impl Address, signal: Signal<T>, value: &T) -> Letter
where
    T: Serialize + JsonSchema + 'static,
{
    Letter::new(to, signal, value, ())
}

/// A signal by its name, as one of [many](crate::Abide::signal_all).
pub fn letter_named(to: impl Address, name: &str, arguments: Arguments) -> Letter {
    Letter::named(to, name, Ok(arguments), ())
}

impl<C> Letter<C> {
    pub(crate) fn new<T>(to: impl Address, signal: Signal<T>, value: &T, client: C) -> Self
    where
        T: Serialize + JsonSchema + 'static,
    {
        let arguments = signal.arguments(value).map_err(|error| Error::Mismatch {
            what: "what the signal is sent with",
            problem: error.to_string(),
        });
        Self::named(to, signal.name(), arguments, client)
    }

    pub(crate) fn named(
        to: impl Address,
        name: &str,
        arguments: Result<Arguments, Error>,
        client: C,
    ) -> Self {
        let delivery = || -> Result<Delivery, Error> {
            Ok(Delivery {
                arguments: arguments?,
                ..Delivery::signal(to.target()?, Name::new(name)?)
            })
        };
        Self {
            delivery: delivery(),
            client,
        }
    }

    pub(crate) fn with_start(mut self, start: Result<Start, Error>) -> Self {
        self.delivery = self.delivery.and_then(|delivery| {
            Ok(Delivery {
                start: Some(Box::new(start?)),
                ..delivery
            })
        });
        self
    }

    /// Sets one thing, unless something before it was refused.
    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut Delivery, T)) -> Self {
        match (&mut self.delivery, value) {
            (Ok(delivery), Ok(value)) => set(delivery, value),
            (Ok(_), Err(refusal)) => self.delivery = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// What tells it from others: sent again with the same, it is the same signal, and safe to repeat.
    pub fn dedup(self, key: impl AsRef<str>) -> Self {
        self.with(Name::new(key), |delivery, value| {
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

    /// Keeps it that long for a key that nobody holds, and hands it to whoever starts under it.
    pub fn hold_for(self, time: Duration) -> Self {
        self.with(Ok(time), |delivery, value| delivery.hold_for = Some(value))
    }
}

impl From<Letter> for Result<Delivery, Error> {
    fn from(letter: Letter) -> Self {
        letter.delivery
    }
}

impl IntoFuture for Letter<Client> {
    type Output = Result<Receipt, SendError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Sends it; durable when this answers.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let answer = self
                .client
                .deliver(vec![self.delivery?])
                .await
                .and_then(first);
            receipt(answer.map_err(Error::from)?)
        })
    }
}

impl Letter<Client> {
    /// Sends it inside your own transaction: it is there when that commits, and never was when it rolls back. See
    /// [`Spec::within`](super::Spec::within).
    pub fn within<T: Within>(self, transaction: T) -> T::Answer<Result<Receipt, SendError>> {
        let ops = self
            .delivery
            .map(|delivery| vec![Op::Deliver(vec![delivery])]);
        transaction.run(&self.client, ops, |answers| {
            match answers?.into_iter().next() {
                Some(Answer::Delivered(each)) => {
                    receipt(each.into_iter().next().ok_or(Error::Closed)?)
                }
                _ => Err(Error::Broken("a signal was answered with something else".into()).into()),
            }
        })
    }
}

/// That a signal or an update was accepted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Receipt {
    /// Its record.
    pub record: Command,
    /// Whether it had been accepted before.
    pub duplicate: bool,
    /// Whether an instance was started for it.
    pub started: bool,
}

impl Receipt {
    /// What became of it: `signal_received`, or `signal_held`.
    pub fn outcome(&self) -> &'static str {
        self.record.outcome()
    }

    /// The record's id.
    pub fn id(&self) -> CommandId {
        self.record.id
    }

    /// Its place in the chain of the instance; none while it is held.
    pub fn sequence(&self) -> Option<Sequence> {
        self.record.sequence
    }

    /// The run that has it; none while it is held.
    pub fn instance(&self) -> Option<InstanceId> {
        self.record.instance
    }
}

/// Why a signal or an update was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is nothing at that id or key.
    #[error(
        "there is nothing at that id or key: start it first, or use `hold_for` or `signal_with_start`"
    )]
    NoTarget,
    /// It was refused, and that is on record.
    #[error("{}{}", .0.why, .0.problems())]
    Rejected(Box<Rejected>),
    /// Anything else.
    #[error(transparent)]
    Error(#[from] Error),
}

impl SendError {
    /// What the decision table calls it; none when it never came to a decision.
    pub fn outcome(&self) -> Option<&'static str> {
        match self {
            Self::NoTarget => Some(Verdict::NoTarget.outcome()),
            Self::Rejected(rejected) => Some(rejected.why.outcome()),
            Self::Error(_) => None,
        }
    }

    /// A stable word for programs; none when it was not refused.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Rejected(rejected) => Some(rejected.why.reason()),
            Self::NoTarget | Self::Error(_) => None,
        }
    }
}

/// A signal or an update that was refused.
#[derive(Debug)]
#[non_exhaustive]
pub struct Rejected {
    /// Why.
    pub why: Rejection,
    /// The record.
    pub record: Option<Command>,
    /// The newest run of the chain, when another was addressed.
    pub current: Option<InstanceId>,
    /// The names that the machine declares, when this is none of them.
    pub offer: Option<Offer>,
    /// The limit that it would have exceeded, when there was no room for it.
    pub limit: Option<Exceeded>,
}

impl Rejected {
    /// All that is wrong with the arguments.
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

/// What a store's answer means to the sender.
pub(crate) fn receipt(answer: Result<Delivered, Refusal>) -> Result<Receipt, SendError> {
    let delivered = answer.map_err(Error::from)?;
    match (delivered.verdict, delivered.record) {
        (Verdict::Received | Verdict::Held | Verdict::Accepted, Some(record)) => Ok(Receipt {
            record,
            duplicate: delivered.duplicate,
            started: delivered.started,
        }),
        (Verdict::Rejected(why), record) => Err(SendError::Rejected(Box::new(Rejected {
            why,
            record,
            current: delivered.current,
            offer: delivered.offer,
            limit: delivered.limit,
        }))),
        _ => Err(SendError::NoTarget),
    }
}
