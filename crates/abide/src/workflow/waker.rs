//! The wakers that a workflow's code and its steps are polled with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;

static THREADS: AtomicU64 = AtomicU64::new(1);
thread_local! {
    /// The number of this thread; never 0.
    static THREAD: u64 = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// The waker of the code. It records where a wake came from. The engine delivers inputs explicitly, so a wake matters
/// only if it comes from the code itself during a poll (one branch wakes another), or from something that is not a
/// durable operation.
#[derive(Debug, Default)]
pub(super) struct Bell {
    /// The thread that polls the code; 0 if none does.
    polled_on: AtomicU64,
    from_within: AtomicBool,
    from_outside: AtomicBool,
    /// The waker of the task that polls the code now, for wakes from outside.
    poller: Mutex<Option<Waker>>,
}

impl Bell {
    /// Notes that this thread polls the code, or delivers an input to it, until the returned value is dropped.
    pub fn enter(self: &Arc<Self>) -> Inside {
        let thread = THREAD.with(|thread| *thread);
        self.polled_on.store(thread, Ordering::Release);
        Inside(self.clone())
    }

    pub fn note_poller(&self, waker: &Waker) {
        let mut poller = lock(&self.poller);
        if !poller.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *poller = Some(waker.clone());
        }
    }

    /// `true` if this thread polls the code now.
    pub fn is_inside(&self) -> bool {
        // The number may be gone while a thread ends. Then the thread polls nothing.
        let thread = THREAD.try_with(|thread| *thread);
        thread.is_ok_and(|thread| self.polled_on.load(Ordering::Acquire) == thread)
    }

    /// `true` if a branch of the code woke another since the last call.
    pub fn take_from_within(&self) -> bool {
        self.from_within.swap(false, Ordering::AcqRel)
    }

    /// `true` if something that is not a durable operation woke the code.
    pub fn was_rung_from_outside(&self) -> bool {
        self.from_outside.load(Ordering::Acquire)
    }
}

/// While this value exists, the code is polled on this thread.
pub(super) struct Inside(Arc<Bell>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.polled_on.store(0, Ordering::Release);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_inside() {
            self.from_within.store(true, Ordering::Release);
        } else {
            self.from_outside.store(true, Ordering::Release);
            if let Some(poller) = lock(&self.poller).take() {
                poller.wake();
            }
        }
    }
}

/// The waker of steps. It remembers a wake until the steps are polled. Between two polls the runner may wait for the
/// store, and a wake of its task would then be lost.
#[derive(Debug, Default)]
pub(super) struct StepBell {
    rung: AtomicBool,
    runner: AtomicWaker,
}

impl StepBell {
    /// Forgets earlier wakes, because the steps are about to be polled.
    pub fn reset(&self) {
        self.rung.store(false, Ordering::Release);
    }

    /// Waits until a step is woken after the last reset.
    pub fn poll_rung(&self, cx: &Context<'_>) -> Poll<()> {
        self.runner.register(cx.waker());
        match self.rung.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl Wake for StepBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.runner.wake();
    }
}

/// Locks a mutex. A panic leaves nothing in it half done.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
