//! The definitions that can be started: a machine, a job, a workflow or a graph.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use abide_core::model::{
    Contract, ContractId, Contracted, Declared, Json, Kind, Name, NotJson, Refusal, Start,
};
use abide_core::rules::deaths::MAX_DEATHS;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, Messages, Step};
use crate::Error;

/// What an instance can be started of: a [`Definition`] with an input of its type, or a machine by its name with
/// [`Json`], also where there is no code for it.
pub trait Startable {
    /// The input that an instance begins with.
    type Input;
    /// The result of an instance.
    type Output: DeserializeOwned + Send;

    /// Returns the name of the machine, if it is valid.
    fn machine(&self) -> Result<Name, Refusal>;

    /// Returns the start of an instance with that input.
    fn start(&self, input: &Self::Input) -> Result<Start, Error>;
}

/// A definition that can be started: a [`Machine`], a [`Job`](super::Job), a [`Flow`](crate::Flow) or a graph.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a machine, a job or a workflow",
    label = "expected a machine, a `Job` or a `Flow`",
    note = "write `#[abide::machine(steps = At)]` on an `impl` block whose async functions are the steps, or use a `Job` or a `Flow`"
)]
pub trait Definition {
    /// The input that an instance begins with.
    type Input: Serialize;
    /// The result of an instance.
    type Output: DeserializeOwned + Send;

    /// The declaration, for processes that do not have the code.
    fn declared(&self) -> Result<Declared, Refusal>;

    /// Converts the input to the state that an instance begins with.
    fn state(&self, input: &Self::Input) -> Result<Json, NotJson> {
        Json::of(input)
    }

    /// The contract for signals and updates; `None` if any signal is accepted.
    fn agreement(&self) -> Result<Option<Arc<Agreement>>, Refusal> {
        Ok(None)
    }
}

/// A contract and its id.
#[derive(Debug)]
pub struct Agreement {
    /// The id.
    pub id: ContractId,
    /// The contract.
    pub contract: Contract,
}

/// The agreement of each `messages` function, built from types once instead of at every start. The compiler may merge
/// functions with the same code; they share an agreement then, which is correct.
static AGREEMENTS: LazyLock<Mutex<HashMap<usize, Option<Arc<Agreement>>>>> =
    LazyLock::new(Mutex::default);

/// Returns the contract that messages declare, and its id; `None` if they declare none.
pub(crate) fn agreed(messages: fn() -> Messages) -> Result<Option<Arc<Agreement>>, Refusal> {
    let of = messages as usize;
    let known = || AGREEMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(agreement) = known().get(&of) {
        return Ok(agreement.clone());
    }
    // Outside the lock, because this calls the user's code.
    let agreement = messages().contract()?.map(|contract| {
        Arc::new(Agreement {
            id: contract.id(),
            contract,
        })
    });
    known().insert(of, agreement.clone());
    Ok(agreement)
}

/// Returns the number of deaths to declare; `None` for the default.
pub(crate) fn declared_deaths(most: u32) -> Option<u32> {
    (most != MAX_DEATHS).then_some(most)
}

#[diagnostic::do_not_recommend]
impl<D: Definition> Startable for D {
    type Input = D::Input;
    type Output = D::Output;

    fn machine(&self) -> Result<Name, Refusal> {
        Ok(self.declared()?.machine)
    }

    fn start(&self, input: &D::Input) -> Result<Start, Error> {
        let declared = self.declared()?;
        let state = self.state(input).map_err(|error| Error::Mismatch {
            what: "the input",
            problem: error.to_string(),
        })?;
        let contract = match self.agreement()? {
            Some(agreement) => Contracted::Given(Box::new(agreement.contract.clone())),
            None => Contracted::Free,
        };
        Ok(Start {
            contract,
            kind: Some(declared.kind),
            version: Some(declared.version),
            step: Some(declared.first_step),
            queue: Some(declared.queue),
            history: Some(declared.history),
            ..Start::of(declared.machine, state)
        })
    }
}

/// Lets machines be started by names of that type. What a start leaves out is taken from the machine's newest
/// declaration.
macro_rules! by_name {
    ($($text:ty),*) => {
        $(
            impl Startable for $text {
                type Input = Json;
                type Output = Json;

                fn machine(&self) -> Result<Name, Refusal> {
                    Name::new(self)
                }

                fn start(&self, input: &Json) -> Result<Start, Error> {
                    Ok(Start::of(Name::new(self)?, input.clone()))
                }
            }
        )*
    };
}

by_name!(&str, &String, String, Name);

/// A machine as its type alone; see [`of`].
pub struct Of<M>(PhantomData<fn() -> M>);

/// Starts instances of a machine where there is no value of it, because what it holds is for its workers.
///
/// ```
/// use abide::machine;
/// use abide::prelude::*;
///
/// struct Mailer { server: std::net::TcpStream }
///
/// #[machine(steps = At, state = String)]
/// impl Mailer {
///     async fn send(&self, ctx: &mut Context<Self>) -> Outcome<Self> {
///         # use std::io::Write as _;
///         (&self.server).write_all(ctx.state().as_bytes())?;
///         done(())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let abide = Abide::open("memory:").await?;
/// abide.start(machine::of::<Mailer>(), "hello".to_owned()).await?;
/// # Ok(())
/// # }
/// ```
pub const fn of<M: Machine>() -> Of<M> {
    Of(PhantomData)
}

#[diagnostic::do_not_recommend]
impl<M: Machine> Definition for M {
    type Input = M::State;
    type Output = M::Output;

    fn declared(&self) -> Result<Declared, Refusal> {
        of::<M>().declared()
    }

    fn agreement(&self) -> Result<Option<Arc<Agreement>>, Refusal> {
        of::<M>().agreement()
    }
}

impl<M: Machine> Definition for Of<M> {
    type Input = M::State;
    type Output = M::Output;

    fn declared(&self) -> Result<Declared, Refusal> {
        let first = M::Step::ALL.first().map_or("start", |step| step.name());
        Ok(Declared {
            kind: Kind::Machine,
            machine: Name::new(M::NAME)?,
            version: M::VERSION,
            first_step: Name::new(first)?,
            queue: Name::new(M::QUEUE)?,
            history: M::HISTORY,
            contract: self.agreement()?.map(|agreement| agreement.id),
            retry: None,
            step_timeout_ms: None,
            max_deaths: declared_deaths(M::MAX_DEATHS),
        })
    }

    fn agreement(&self) -> Result<Option<Arc<Agreement>>, Refusal> {
        agreed(M::messages)
    }
}
