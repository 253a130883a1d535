//! The real engine on a store in memory, with a clock that only moves when the test moves it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{AT_ONCE, Instance, InstanceId, Limits, Status, Timestamp};
use abide_kernel::memory::Memory;
use abide_kernel::{Answer, Clock, ManualClock, Op, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::crash::Crashes;
use super::describe::describe;
use crate::client::Handle;
use crate::engine::{Crash, Engine, EngineBuilder, Retention, Settings};
use crate::graph::Graph;
use crate::machine::{Job, Machine, Step};
use crate::time::days;
use crate::workflow::{Flow, WorkflowCode};
use crate::{Abide, BoxError, Error};

/// A test environment: an [`Abide`] on a store in memory, a worker that runs your machines, and a clock that you move.
/// It derefs to the `Abide`, so `kit.start(…)` starts an instance.
///
/// See the [module's page](super) for an example.
pub struct Kit {
    abide: Abide,
    clock: ManualClock,
    worker: Mutex<Engine>,
    again: EngineBuilder,
    crashes: Crashes,
}

/// A builder of a [`Kit`].
#[must_use = "finish it with `.build().await`"]
pub struct KitBuilder {
    abide: Abide,
    clock: ManualClock,
    engine: EngineBuilder,
    crashes: Crashes,
}

/// Real time without progress after which running steps are assumed to wait for something external.
const STALL: Duration = Duration::from_millis(200);

impl Kit {
    /// Returns a builder without machines. Its clock stands at 2030-01-01T00:00:00Z.
    pub fn builder() -> KitBuilder {
        let clock = ManualClock::at(Timestamp::from_micros(1_893_456_000_000_000));
        let store: Arc<dyn Store> =
            Arc::new(Memory::new(Arc::new(clock.clone()), Limits::default()));
        let abide = Abide::options().patience(Duration::ZERO).on(store.clone());
        let client = abide.client();
        let (committer, commands) = (client.committer.clone(), client.commands.clone());
        let crashes = Crashes::default();
        // The bus of a store in memory loses nothing, so no polling is necessary. A worker dies only when the test says
        // so.
        let settings = Settings {
            lease: days(36_500),
            poll: days(36_500),
            watch: days(36_500),
            retention: Retention::Forever,
            crash: Some(crashes.point()),
            ..Settings::new()
        };
        KitBuilder {
            abide,
            clock,
            engine: EngineBuilder::new(committer, commands, Limits::default(), settings),
            crashes,
        }
    }

    /// The current time of the test's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Runs everything that can run now. Instances that wait for a time, for a signal or for a child that waits stay
    /// where they are; if the worker is dead, all of them do. For a step that waits for something external, this waits
    /// only a moment.
    pub async fn settle(&self) {
        let worker = self.worker.lock().await;
        loop {
            let before = progress(&worker);
            let fired = self.fire().await;
            let stalled = tokio::time::timeout(STALL, worker.idle()).await.is_err();
            let moved = progress(&worker) != before;
            if !moved && (stalled || fired == 0) {
                return;
            }
        }
    }

    /// Moves the clock forward by `by`, stops at every time at which something is due, and settles.
    pub async fn advance(&self, by: Duration) {
        let until = self.now() + by;
        loop {
            self.settle().await;
            let due = self.abide.store().next_due().await.ok().flatten();
            let next = due
                .into_iter()
                .chain(self.clock.next_sleeper())
                .filter(|next| *next > self.now())
                .min();
            match next.filter(|next| *next <= until) {
                Some(next) => self.clock.set(next),
                None => break,
            }
        }
        self.clock.set(until);
        self.settle().await;
    }

    /// Kills the worker after it has run that step and before it commits: the step will run again.
    pub fn kill_worker_before_commit(&self, step: impl Step) {
        self.crashes.arm(step.name(), Crash::BeforeCommit);
    }

    /// Kills the worker after it has committed that step and before anything follows: the step will not run again.
    pub fn kill_worker_after_commit(&self, step: impl Step) {
        self.crashes.arm(step.name(), Crash::AfterCommit);
    }

    /// Kills the worker after every commit, also after it is started again; `false` ends that. Use it for workflows:
    /// their result and their history must be the same.
    pub fn kill_worker_after_every_commit(&self, dies: bool) {
        self.crashes.always(dies.then_some(Crash::AfterCommit));
    }

    /// `true` if the worker has died.
    pub async fn worker_is_dead(&self) -> bool {
        self.worker.lock().await.is_dead()
    }

    /// Starts the worker again under its name. It takes back at once the claims that it held.
    pub async fn restart_worker(&self) -> Result<(), Error> {
        let mut worker = self.worker.lock().await;
        *worker = self.again.clone().start().await?;
        Ok(())
    }

    /// Asserts that an instance is done, with that result.
    pub async fn assert_done<O>(&self, handle: &Handle<O>, expected: &O)
    where
        O: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
    {
        let instance = self.expect(handle.id(), Status::Done).await;
        let came_to = instance
            .result
            .as_ref()
            .and_then(|result| result.to::<O>().ok());
        assert_eq!(
            came_to.as_ref(),
            Some(expected),
            "{}",
            self.description(&instance).await
        );
    }

    /// Asserts that an instance has failed, with an error that contains that text.
    pub async fn assert_failed<O>(&self, handle: &Handle<O>, error: &str) {
        let instance = self.expect(handle.id(), Status::Failed).await;
        let last_error = instance.last_error.as_deref().unwrap_or_default();
        assert!(
            last_error.contains(error),
            "expected an error with {error:?} in it, but {}",
            self.description(&instance).await
        );
    }

    /// Asserts that an instance has that status.
    pub async fn assert_status<O>(&self, handle: &Handle<O>, status: Status) {
        self.expect(handle.id(), status).await;
    }

    /// Asserts that an instance has not ended, and that this step runs next or runs when the wait ends.
    pub async fn assert_at<O>(&self, handle: &Handle<O>, step: impl Step) {
        let instance = self.instance(handle.id()).await;
        let there = !instance.status.is_terminal() && instance.step.as_str() == step.name();
        assert!(
            there,
            "expected it to be at step {}, but {}",
            step.name(),
            self.description(&instance).await
        );
    }

    async fn expect(&self, id: InstanceId, status: Status) -> Instance {
        let instance = self.instance(id).await;
        assert!(
            instance.status == status,
            "expected it to be {status}, but {}",
            self.description(&instance).await
        );
        instance
    }

    async fn instance(&self, id: InstanceId) -> Instance {
        let found = self.abide.get(id).await;
        #[allow(clippy::panic, reason = "an assertion of the test kit")]
        match found {
            Ok(Some(instance)) => instance,
            Ok(None) => panic!("there is no instance {id}"),
            Err(error) => panic!("instance {id} cannot be read: {error}"),
        }
    }

    async fn description(&self, instance: &Instance) -> String {
        let workers = self.abide.workers().await.unwrap_or_default();
        describe(instance, &workers, self.now())
    }

    async fn fire(&self) -> usize {
        let mut fired = 0;
        loop {
            let answers = self
                .abide
                .store()
                .run(Arc::from([Op::Fire { limit: AT_ONCE }]))
                .await;
            match answers.as_deref() {
                Ok([Answer::Fired { count, more, .. }]) => {
                    fired += count;
                    if !more {
                        return fired;
                    }
                }
                _ => return fired,
            }
        }
    }
}

/// Numbers that change when a step begins or ends.
fn progress(worker: &Engine) -> (u64, u64, u64) {
    let stats = worker.stats();
    (stats.claimed, stats.committed, stats.stale + stats.refused)
}

impl Deref for Kit {
    type Target = Abide;

    fn deref(&self) -> &Abide {
        &self.abide
    }
}

impl KitBuilder {
    /// Runs a machine.
    pub fn machine<M: Machine>(mut self, machine: M) -> Self {
        self.engine = self.engine.machine(machine);
        self
    }

    /// Runs a job.
    pub fn job<A, O, F, R>(mut self, job: Job<A, O>, code: F) -> Self
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send,
    {
        self.engine = self.engine.job(job, code);
        self
    }

    /// Runs a workflow.
    pub fn workflow<I, O>(mut self, flow: Flow<I, O>, code: impl WorkflowCode<I, O>) -> Self
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        self.engine = self.engine.workflow(flow, code);
        self
    }

    /// Advances the runs of a graph.
    pub fn graph(mut self, graph: &Graph) -> Self {
        self.engine = self.engine.graph(graph);
        self
    }

    /// Runs a task of graphs.
    pub fn task<A, O, F, R>(mut self, name: &str, code: F) -> Self
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send,
    {
        self.engine = self.engine.task(name, code);
        self
    }

    /// Sets how many waiting workflows keep their code in memory. With 0, every workflow that continues is replayed.
    pub fn workflows_kept(mut self, most: usize) -> Self {
        self.engine = self.engine.workflows_kept(most);
        self
    }

    /// Serves a queue, with at most that many of its steps running at once.
    pub fn queue(mut self, name: &str, concurrency: usize) -> Self {
        self.engine = self.engine.queue(name, concurrency);
        self
    }

    /// Deletes finished instances after that time; by default never.
    pub fn retention(mut self, kept: Duration) -> Self {
        self.engine = self.engine.retention(Retention::For(kept));
        self
    }

    /// Starts the worker.
    pub async fn build(self) -> Result<Kit, Error> {
        let Self {
            abide,
            clock,
            engine,
            crashes,
        } = self;
        let worker = Mutex::new(engine.clone().start().await?);
        Ok(Kit {
            abide,
            clock,
            worker,
            again: engine,
            crashes,
        })
    }
}
