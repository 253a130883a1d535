//! Contracts: the signals and updates that an instance accepts, with the names and types of their parameters. A machine
//! declares them with Rust types ([`Messages`](crate::machine::Messages)) or as data ([`Contract`]). The contract is
//! stored with each instance, and everything that is sent to it is validated; [`ValidationErrors`] lists all problems of
//! one command.

pub use abide_core::model::{Accepts, Contract, Parameter, TypeSpec};
pub use abide_core::rules::contract::{Problem, ValidationErrors};
