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

use std::sync::Arc;

use abide_kernel::Store;

/// What every call goes through.
#[derive(Clone)]
pub struct Client {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) submit: Submit,
    pub(crate) endings: Endings,
}
