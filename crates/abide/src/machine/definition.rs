//! What can be started: a machine or a job.

use abide_core::model::{Declared, Name, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Machine, Step};

/// What can be started: a [`Machine`] or a [`Job`](super::Job).
pub trait Definition {
    /// What an instance begins with.
    type Input: Serialize;
    /// What it comes to.
    type Output: DeserializeOwned + Send;

    /// How it is declared to those who have no code for it.
    fn declared(&self) -> Result<Declared, Refusal>;
}

impl<M: Machine> Definition for M {
    type Input = M::State;
    type Output = M::Output;

    fn declared(&self) -> Result<Declared, Refusal> {
        let first = M::Step::ALL.first().map_or("start", |step| step.name());
        Ok(Declared {
            machine: Name::new(M::NAME)?,
            version: M::VERSION,
            first_step: Name::new(first)?,
            queue: Name::new(M::QUEUE)?,
            history: M::HISTORY,
        })
    }
}
