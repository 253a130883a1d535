//! The names that most programs need: `use abide::prelude::*;`. Everything else is imported by its name, from the module
//! that it belongs to.

pub use crate::graph::Graph;
pub use crate::machine::{Context, Job, Machine, Outcome, Retry, done, machine, next, stop};
pub use crate::message::{Event, Query, Signal, Update};
pub use crate::model::Status;
pub use crate::time::{days, hours, millis, minutes, secs};
pub use crate::workflow::{Flow, Workflow};
// Each of these is a trait and its derive.
pub use crate::{Abide, BoxError, Message, Step};
