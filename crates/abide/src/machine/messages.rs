//! What signals and updates a machine takes, and how it answers an update.

use abide_core::model::{Accepts, Command, CommandId, Contract, Json, Name, Parameter, Refusal};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, Move, Outcome};
use crate::message::{Signal, Update, read};
use crate::{BoxError, Error};

/// The signals and updates that a machine takes. They are stored with each instance when it starts, and whoever sends
/// is held to them, also where there is no code for the machine.
///
/// ```
/// use abide::{Messages, Signal, Update};
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
    /// Any signal, and no update.
    pub fn any() -> Self {
        Self(Ok(Contract::default()))
    }

    /// Those that are named from here on. Without a signal among them any is taken.
    pub fn new() -> Self {
        Self::any()
    }

    /// A signal, with what its type is sent as.
    pub fn signal<T: JsonSchema + 'static>(self, signal: Signal<T>) -> Self {
        self.with(signal.accepts(), |contract| &mut contract.signals)
    }

    /// An update, with what its type is sent as.
    pub fn update<A: JsonSchema + 'static, R>(self, update: Update<A, R>) -> Self {
        self.with(update.accepts(), |contract| &mut contract.updates)
    }

    /// A signal whose parameters are written out by hand.
    pub fn signal_by_hand(
        self,
        name: &str,
        parameters: impl IntoIterator<Item = Parameter>,
    ) -> Self {
        self.with(by_hand(name, parameters), |contract| &mut contract.signals)
    }

    /// An update whose parameters are written out by hand.
    pub fn update_by_hand(
        self,
        name: &str,
        parameters: impl IntoIterator<Item = Parameter>,
    ) -> Self {
        self.with(by_hand(name, parameters), |contract| &mut contract.updates)
    }

    /// A signal as data, from a file perhaps.
    pub fn signal_of(self, accepts: Accepts) -> Self {
        self.with(Ok(accepts), |contract| &mut contract.signals)
    }

    /// An update as data.
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

    /// The contract; none when anything is taken.
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

/// An update that is to be answered.
pub struct Call<'c>(pub(super) &'c Command);

impl Call<'_> {
    /// Its id: the same when it has to be answered again after a crash.
    pub fn id(&self) -> CommandId {
        self.0.id
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Whether it is that one.
    pub fn is<A, R>(&self, update: Update<A, R>) -> bool {
        self.name() == update.name()
    }

    /// What it was sent with.
    pub fn read<A, R>(&self, update: Update<A, R>) -> Result<A, Error>
    where
        A: DeserializeOwned + JsonSchema + 'static,
    {
        read(&self.0.arguments).map_err(|error| Error::Mismatch {
            what: "what an update was sent with",
            problem: format!("{}: {error}", update.name()),
        })
    }

    /// Its arguments: an object by parameter.
    pub fn arguments(&self) -> &Json {
        &self.0.arguments
    }

    /// Who sent it; of what came over HTTP, as the server knows.
    pub fn source(&self) -> Option<&str> {
        self.0.source.as_deref()
    }

    /// Who sent it, as a client of a server said; that is not checked.
    pub fn claimed_source(&self) -> Option<&str> {
        self.0.claimed_source.as_deref()
    }
}

/// What an update handler returns: the answer, or an error, which changes nothing but the update's own record.
pub type Answer<M> = Result<Reply<M>, BoxError>;

/// The answer to an update, and what the instance does then, if it is not to go on as it was.
pub struct Reply<M: Machine> {
    pub(super) result: Json,
    pub(super) then: Option<Move<M>>,
}

impl<A, R: Serialize> Update<A, R> {
    /// The answer: the state is committed with it as the handler leaves it, and the instance goes on as it was.
    pub fn reply<M: Machine>(&self, result: &R) -> Answer<M> {
        reply(result)
    }

    /// The answer, and what the instance does then instead of what it did: `RENAME.reply_then(&name, next(At::Print))`.
    pub fn reply_then<M: Machine>(&self, result: &R, then: Outcome<M>) -> Answer<M> {
        Ok(Reply {
            then: Some(then?),
            ..reply(result)?
        })
    }
}

/// An untyped answer.
pub fn reply<M: Machine>(result: &(impl Serialize + ?Sized)) -> Answer<M> {
    Ok(Reply {
        result: Json::of(result)?,
        then: None,
    })
}
