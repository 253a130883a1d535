//! The operations of an operator: cancel, describe, and repair.

mod cancelling;
mod describing;
mod families;
mod mending;

use abide::Signal;

pub const GO: Signal<()> = Signal::new("go");
