//! What an application calls: start an instance, wait for what it comes to, look at it.

mod endings;
mod handle;
mod spec;
mod submit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod within;

pub(crate) use endings::Endings;
pub use handle::{Handle, NotDone};
pub use spec::{Spec, StartError, spec};
pub(crate) use submit::Submit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use within::Within;

use std::sync::Arc;

use abide_core::model::Limits;
use abide_kernel::Store;

/// What every call goes through.
#[derive(Clone)]
pub struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) submit: Submit,
    pub(crate) endings: Endings,
    /// The limits in force, for what runs in a transaction of the caller's.
    #[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), allow(dead_code))]
    pub(crate) limits: Limits,
}
