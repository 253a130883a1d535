//! The thread that renews a worker's lease, and detects when the runtime of the steps is blocked.
//!
//! It has a runtime of its own, and its requests to the store depend on no other runtime (rule 6.4). A step that blocks
//! every thread of the host's runtime holds up all other steps, but not the heartbeat of its worker.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use abide_core::model::Name;
use abide_core::rules::leases::renewal;
use abide_kernel::{Answer, Backoff, Error, Op, Renewer, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::builder::Shared;
use super::lease::{believe, register};
use super::stats::add;

/// The interval between checks that the host's runtime runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// A runtime that has run no task for this long is blocked.
const BLOCKED: Duration = Duration::from_secs(1);
/// The delay that is tolerated in this thread itself. If it is later, the process or the computer was suspended, and no
/// step is to blame.
const LATE: Duration = Duration::from_millis(250);
/// The time limit for closing the connections of the thread.
const CLOSING: Duration = Duration::from_secs(1);

/// Starts the thread. The returned task ends when the thread has ended. The thread ends with the engine's
/// [`over`](Shared::over), or when the host's runtime is gone.
///
/// Errors: the operating system cannot start a thread, or the store's settings are no longer usable for another
/// connection.
pub(super) async fn start(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let renewer = shared.store.renewer()?;
    // If this function ends early, or the runtime is dropped under the engine, this guard is dropped. Then nothing is
    // renewed any more, and other workers take what the engine held.
    let over = shared.over.clone().drop_guard();
    let (ended, is_ended) = oneshot::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let host = Handle::current();
    let thread = thread::Builder::new()
        .name("abide-lease".into())
        .spawn({
            let shared = shared.clone();
            move || {
                // Dropped last: the thread has nothing left to do.
                let _ended = ended;
                let built = Builder::new_current_thread().enable_all().build();
                let runtime = match built {
                    Ok(runtime) => runtime,
                    Err(error) => return drop(begun.send(Err(error))),
                };
                // An error means that the engine's start no longer waits for this.
                let _ = begun.send(Ok(()));
                runtime.block_on(
                    Heart {
                        shared,
                        renewer,
                        host,
                    }
                    .beat(),
                );
            }
        })
        .map_err(|error| no_thread(&error))?;
    has_begun
        .await
        .map_err(|_| Error::Closed)?
        .map_err(|error| no_thread(&error))?;
    Ok(tokio::spawn(async move {
        let _over = over;
        // The sender is dropped without sending anything.
        let _ = is_ended.await;
        if thread.join().is_err() {
            tracing::error!("the thread that renews the lease has panicked");
        }
    }))
}

fn no_thread(error: &std::io::Error) -> Error {
    Error::Unavailable(format!(
        "the thread that renews leases cannot be started: {error}; raise the limit on threads, or start fewer engines"
    ))
}

/// The state of the thread.
struct Heart {
    shared: Arc<Shared>,
    /// Renews the lease. If it is `None`, the store itself does that.
    renewer: Option<Box<dyn Renewer>>,
    /// The runtime that the steps run on.
    host: Handle,
}

impl Heart {
    async fn beat(self) {
        tokio::select! {
            () = self.shared.over.cancelled() => {}
            () = self.keep_alive() => {}
            () = self.watch() => {}
        }
        if let Some(renewer) = &self.renewer {
            // A close that takes too long ends with the thread's runtime.
            let _ = tokio::time::timeout(CLOSING, renewer.close()).await;
        }
    }

    /// Renews the lease until nothing runs any more (rule 6.4). In a shutdown that may be later than the engine's stop
    /// (rule 6.7). It does nothing else, so that nothing delays it.
    async fn keep_alive(&self) {
        let shared = &self.shared;
        let interval = renewal(shared.settings.lease);
        let mut pause = interval;
        let mut backoff = Backoff::away();
        while shared.pause_until(&shared.over, pause).await.is_continue() {
            pause = match self.renew().await {
                Ok(()) => {
                    backoff.reset();
                    interval
                }
                Err(error) => {
                    tracing::warn!(%error, worker = %shared.settings.name, "the lease could not be renewed; trying again");
                    // Until the renewal succeeds, nothing may be claimed after the end of the lease.
                    backoff
                        .failed()
                        .map_or(interval, |delay| interval.min(delay))
                }
            };
        }
    }

    async fn renew(&self) -> Result<()> {
        let shared = &self.shared;
        let from = shared.clock.now();
        let ops = Arc::from([Op::Renew {
            workers: vec![shared.worker()],
            lease: shared.settings.lease,
        }]);
        let answers = match &self.renewer {
            Some(renewer) => renewer.run(ops).await?,
            None => shared.store.run(ops).await?,
        };
        if shared.over.is_cancelled() {
            // The worker may have signed off meanwhile, and must not register again.
            return Ok(());
        }
        if matches!(answers.first(), Some(Answer::Renewed { lost }) if !lost.is_empty()) {
            return self.come_back().await;
        }
        believe(shared, from);
        Ok(())
    }

    /// Registers again, under another name: two processes that share a name would take it from each other forever. Runs
    /// on the host's runtime: nothing can be claimed while that is blocked, and the store's own connections belong to
    /// it.
    async fn come_back(&self) -> Result<()> {
        let shared = self.shared.clone();
        tracing::error!(
            worker = %shared.settings.name,
            "the lease expired, or another process took this worker's name: its claims run elsewhere"
        );
        let name = Name::new(format!(
            "{}~{:08x}",
            shared.settings.name,
            fastrand::u32(..)
        ))?;
        let registered = self
            .host
            .spawn(async move { register(&shared, name).await });
        registered.await.unwrap_or(Err(Error::Closed))
    }

    /// Checks that the host's runtime runs, and warns once each time it does not. Returns when the runtime is gone.
    async fn watch(&self) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let (runs, mut has_run) = oneshot::channel();
            self.host.spawn(async move {
                // An error means that the thread that waits for this has ended.
                let _ = runs.send(());
            });
            let sent_at = Instant::now();
            let mut warned = false;
            loop {
                let waited = Instant::now();
                match tokio::time::timeout(BLOCKED, &mut has_run).await {
                    Ok(Ok(())) => break,
                    // The runtime has dropped the task, and is gone.
                    Ok(Err(_)) => return,
                    Err(_) if warned || waited.elapsed() > BLOCKED + LATE => {}
                    Err(_) => {
                        warned = true;
                        add(&self.shared.counters.blocked, 1);
                        self.warn(sent_at.elapsed());
                    }
                }
            }
            if warned {
                tracing::info!(
                    worker = %self.shared.settings.name,
                    blocked = ?sent_at.elapsed(),
                    "the runtime runs tasks again"
                );
            }
        }
    }

    fn warn(&self, blocked: Duration) {
        tracing::warn!(
            worker = %self.shared.settings.name,
            ?blocked,
            "the runtime runs no tasks: steps block its threads, so that no other step runs and timers are late; run blocking \
             code with `tokio::task::spawn_blocking`"
        );
    }
}
