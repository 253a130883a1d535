//! The signals and updates that a machine accepts, and the answers to updates.

use abide_core::model::{Accepts, Command, CommandId, Contract, Json, Name, Parameter, Refusal};
use serde::Serialize;

use super::{Machine, Move, Outcome};
use crate::message::{Message, Signal, Update, read};
use crate::{BoxError, Error};

/// The signals and updates that a machine accepts. They are stored with each instance when it starts, and everything
/// that is sent to it is validated against them, also where there is no code for the machine.
///
/// ```
/// use abide::machine::Messages;
/// use abide::{Signal, Update};
///
/// const PAID: Signal<u32> = Signal::new("paid");
/// const RENAME: Update<String, String> = Update::new("rename");
///
/// let messages = Messages::new().signal(PAID).update(RENAME);
/// # let _ = messages;
/// ```
#[must_use]
pub struct Messages(Result<Contract, Refusal>);

impl Messages {
    /// Accepts any signal, and no update.
    pub fn any() -> Self {
        Self(Ok(Contract::default()))
    }

    /// Accepts the signals and updates that are added to it. As long as it has no signal, any signal is accepted.
    pub fn new() -> Self {
        Self::any()
    }

    /// Adds a signal, with the parameters of its type.
    pub fn signal<T: Message>(self, signal: Signal<T>) -> Self {
        self.with(signal.accepts(), |contract| &mut contract.signals)
    }

    /// Adds an update, with the parameters of its type.
    pub fn update<A: Message, R>(self, update: Update<A, R>) -> Self {
        self.with(update.accepts(), |contract| &mut contract.updates)
    }

    /// Adds a signal whose parameters are written by hand.
    pub fn signal_by_hand(
        self,
        name: &str,
        parameters: impl IntoIterator<Item = Parameter>,
    ) -> Self {
        self.with(by_hand(name, parameters), |contract| &mut contract.signals)
    }

    /// Adds an update whose parameters are written by hand.
    pub fn update_by_hand(
        self,
        name: &str,
        parameters: impl IntoIterator<Item = Parameter>,
    ) -> Self {
        self.with(by_hand(name, parameters), |contract| &mut contract.updates)
    }

    /// Adds a signal that is given as data, for example from a file.
    pub fn signal_of(self, accepts: Accepts) -> Self {
        self.with(Ok(accepts), |contract| &mut contract.signals)
    }

    /// Adds an update that is given as data.
    pub fn update_of(self, accepts: Accepts) -> Self {
        self.with(Ok(accepts), |contract| &mut contract.updates)
    }

    fn with(
        mut self,
        accepts: Result<Accepts, Refusal>,
        list: impl FnOnce(&mut Contract) -> &mut Vec<Accepts>,
    ) -> Self {
        match (&mut self.0, accepts) {
            (Ok(contract), Ok(accepts)) => list(contract).push(accepts),
            (Ok(_), Err(refusal)) => self.0 = Err(refusal),
            (Err(_), _) => {}
        }
        self
    }

    /// Returns the contract, or `None` if nothing is declared.
    pub(crate) fn contract(self) -> Result<Option<Contract>, Refusal> {
        Ok(Some(self.0?).filter(|contract| !contract.is_empty()))
    }
}

fn by_hand(
    name: &str,
    parameters: impl IntoIterator<Item = Parameter>,
) -> Result<Accepts, Refusal> {
    Ok(Accepts {
        name: Name::new(name)?,
        parameters: Some(parameters.into_iter().collect()),
    })
}

impl Default for Messages {
    fn default() -> Self {
        Self::any()
    }
}

/// An update to answer.
pub struct Call<'c>(pub(super) &'c Command);

impl Call<'_> {
    /// The id of the update. It is the same if the update has to be answered again after a crash.
    pub fn id(&self) -> CommandId {
        self.0.id
    }

    /// The name of the update.
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// `true` if this is the given update.
    pub fn is<A, R>(&self, update: Update<A, R>) -> bool {
        self.name() == update.name()
    }

    /// Reads the arguments as the type of the update.
    pub fn read<A, R>(&self, update: Update<A, R>) -> Result<A, Error>
    where
        A: Message,
    {
        read(&self.0.arguments).map_err(|error| Error::Mismatch {
            what: "the value of an update",
            problem: format!("{}: {error}", update.name()),
        })
    }

    /// The arguments, as an object by parameter.
    pub fn arguments(&self) -> &Json {
        &self.0.arguments
    }

    /// The sender. For an update over HTTP, this is the caller as the server knows it.
    pub fn source(&self) -> Option<&str> {
        self.0.source.as_deref()
    }

    /// The sender as the client of a server claims it; this is not verified.
    pub fn claimed_source(&self) -> Option<&str> {
        self.0.claimed_source.as_deref()
    }
}

/// The return type of an update handler: the answer, or an error, which changes nothing but the update's own record.
pub type Answer<M> = Result<Reply<M>, BoxError>;

/// The answer to an update, and the next move of the instance, if it is not to continue as before.
pub struct Reply<M: Machine> {
    pub(super) result: Json,
    pub(super) then: Option<Move<M>>,
}

impl<A, R: Serialize> Update<A, R> {
    /// Answers the update. The state is committed with the answer as the handler leaves it, and the instance continues
    /// as before.
    pub fn reply<M: Machine>(&self, result: &R) -> Answer<M> {
        reply(result)
    }

    /// Answers the update and replaces what the instance does next: `RENAME.reply_then(&name, next(At::Print))`.
    pub fn reply_then<M: Machine>(&self, result: &R, then: Outcome<M>) -> Answer<M> {
        Ok(Reply {
            then: Some(then?),
            ..reply(result)?
        })
    }
}

/// Answers an update with an untyped result.
pub fn reply<M: Machine>(result: &(impl Serialize + ?Sized)) -> Answer<M> {
    Ok(Reply {
        result: Json::of(result)?,
        then: None,
    })
}
