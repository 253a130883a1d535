//! Where a workflow's code is polled: a runtime with no timers, no I/O and nobody to run its tasks. What is no durable
//! operation is seen there when it is begun, whatever else the code waits for.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// One for each thread: what was spawned in a poll, the code that was polled has spawned. It is never dropped with
    /// its thread, where a runtime must not be.
    static BARREN: RefCell<Option<ManuallyDrop<Runtime>>> = const { RefCell::new(None) };
}

/// Does something there. Whether it spawned tasks, which are gone then.
pub(super) fn within<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let barren = BARREN.with_borrow_mut(|barren| {
        if barren.is_none() {
            *barren = Builder::new_current_thread()
                .build()
                .ok()
                .map(ManuallyDrop::new);
        }
        barren.as_ref().map(|barren| barren.handle().clone())
    });
    let Some(barren) = barren else {
        return (work(), false);
    };
    let done = {
        let _entered = barren.enter();
        work()
    };
    let spawned = barren.metrics().num_alive_tasks() > 0;
    if spawned && let Some(tainted) = BARREN.take() {
        ManuallyDrop::into_inner(tainted).shutdown_background();
    }
    (done, spawned)
}

/// Whether a panic says that there are no timers and no I/O here.
pub(super) fn is_missed(panic: &str) -> bool {
    panic.contains("A Tokio 1.x context was found, but ") && panic.contains("disabled")
}
