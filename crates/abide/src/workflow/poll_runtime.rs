//! The runtime in which a workflow's code is polled: it has no timers and no I/O, and does not run tasks. An operation
//! that is not durable is detected there when it begins, whatever else the code waits for.

use std::cell::RefCell;
use std::mem::ManuallyDrop;

use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// One for each thread: a task that is spawned during a poll was spawned by the polled code. It is never dropped
    /// with its thread, because a runtime must not be dropped there.
    static BARREN: RefCell<Option<ManuallyDrop<Runtime>>> = const { RefCell::new(None) };
}

/// Does work in that runtime. The second value is `true` if it spawned tasks, which are then dropped.
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

/// `true` if a panic message says that there are no timers or no I/O here.
pub(super) fn is_missed(panic: &str) -> bool {
    panic.contains("A Tokio 1.x context was found, but ") && panic.contains("disabled")
}
