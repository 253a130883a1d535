//! What can be started: a machine, a job or a workflow.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use abide_core::model::{Contract, ContractId, Declared, Json, Kind, Name, NotJson, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, Messages, Step};

/// What can be started: a [`Machine`], a [`Job`](super::Job) or a [`Flow`](crate::Flow).
pub trait Definition {
    /// What an instance begins with.
    type Input: Serialize;
    /// What it comes to.
    type Output: DeserializeOwned + Send;

    /// How it is declared to those who have no code for it.
    fn declared(&self) -> Result<Declared, Refusal>;

    /// The state that an instance begins with.
    fn state(&self, input: &Self::Input) -> Result<Json, NotJson> {
        Json::of(input)
    }

    /// What signals and updates it takes; none when any signal will do.
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

/// What each function says of its messages: made of types once, not at every start. Functions that say the same may be
/// one, which is as well.
static AGREEMENTS: LazyLock<Mutex<HashMap<usize, Option<Arc<Agreement>>>>> =
    LazyLock::new(Mutex::default);

/// The contract that messages make, and its id; none when anything is taken.
pub(crate) fn agreed(messages: fn() -> Messages) -> Result<Option<Arc<Agreement>>, Refusal> {
    let of = messages as usize;
    let known = || AGREEMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(agreement) = known().get(&of) {
        return Ok(agreement.clone());
    }
    // Outside the lock: this is the user's code.
    let agreement = messages().contract()?.map(|contract| {
        Arc::new(Agreement {
            id: contract.id(),
            contract,
        })
    });
    known().insert(of, agreement.clone());
    Ok(agreement)
}

impl<M: Machine> Definition for M {
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
        })
    }

    fn agreement(&self) -> Result<Option<Arc<Agreement>>, Refusal> {
        agreed(M::messages)
    }
}
