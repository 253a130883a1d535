//! The engine and its builder: configuring, starting and stopping it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide_core::model::{AT_ONCE, Declared, Lane, Limits, Name, Refusal, WorkerId};
use abide_core::rules::leases;
use abide_kernel::committer::{Bulk, Committer, Deliveries, Submit};
use abide_kernel::{Clock, Op, Store};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::dispatch::{Control, Dispatcher};
use super::settings::Settings;
use super::stats::Counters;
use super::{
    Check, Retention, Runner, Stats, check, heartbeat, lease, release, retention, timers, unserved,
};
use crate::{Error, outbox};

/// State that the tasks of one engine share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub committer: Committer,
    /// The batches in which claims are taken back from dead workers, and the instances that these skip.
    pub reclaiming: tokio::sync::Mutex<Bulk>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
    pub commands: Submit<Deliveries>,
    code: RwLock<Arc<Code>>,
    /// The name under which this worker is registered. It differs from its own name if that was taken from it.
    alias: RwLock<Name>,
    pub worker: AtomicI64,
    /// The end of this worker's lease as far as it knows, in microseconds. After that it must not claim anything.
    pub believed_until: AtomicI64,
    /// Notified when the lease is valid again, so that the worker may claim what it left alone.
    pub believed_again: Notify,
    pub counters: Counters,
    /// The first transaction of the dispatcher is over, or it had nothing to do.
    pub first_landed: CancellationToken,
    /// Make no more claims; finish running steps.
    pub stop: CancellationToken,
    /// Drop running steps.
    pub kill: CancellationToken,
    /// Nothing runs any more, so the lease may end.
    pub over: CancellationToken,
}

/// The code of an engine and the queues that it serves. Both may grow while it runs.
#[derive(Clone, Default)]
struct Code {
    runners: HashMap<Lane, Arc<dyn Runner>>,
    lanes: Vec<Lane>,
    queues: Vec<Name>,
}

impl Code {
    fn new(runners: HashMap<Lane, Arc<dyn Runner>>, queues: Vec<Name>) -> Self {
        let mut lanes: Vec<Lane> = runners.keys().cloned().collect();
        lanes.sort_unstable();
        Self {
            runners,
            lanes,
            queues,
        }
    }
}

impl Shared {
    fn code(&self) -> Arc<Code> {
        let code = self.code.read().unwrap_or_else(PoisonError::into_inner);
        code.clone()
    }

    /// The lanes that this worker has code for.
    pub fn lanes(&self) -> Vec<Lane> {
        self.code().lanes.clone()
    }

    /// The code for a lane.
    pub fn runner(&self, lane: &Lane) -> Option<Arc<dyn Runner>> {
        self.code().runners.get(lane).cloned()
    }

    /// Adds code for lanes that have none yet. Returns these lanes.
    fn learn(&self, runners: Vec<(Lane, Arc<dyn Runner>)>) -> Vec<Lane> {
        let mut code = self.code.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = code.runners.clone();
        let mut new = Vec::new();
        for (lane, runner) in runners {
            if let Entry::Vacant(entry) = known.entry(lane) {
                new.push(entry.key().clone());
                entry.insert(runner);
            }
        }
        if !new.is_empty() {
            *code = Arc::new(Code::new(known, code.queues.clone()));
        }
        new
    }

    /// The queues that this worker serves.
    pub fn queues(&self) -> Vec<Name> {
        self.code().queues.clone()
    }

    /// Adds a queue. `true` if it is new.
    fn serve(&self, queue: &Name) -> bool {
        let mut code = self.code.write().unwrap_or_else(PoisonError::into_inner);
        let new = !code.queues.contains(queue);
        if new {
            let mut queues = code.queues.clone();
            queues.push(queue.clone());
            *code = Arc::new(Code::new(code.runners.clone(), queues));
        }
        new
    }

    /// The name under which this worker is registered.
    pub fn alias(&self) -> Name {
        let alias = self.alias.read().unwrap_or_else(PoisonError::into_inner);
        alias.clone()
    }

    /// Notes the name and the id under which this worker was registered.
    pub fn registered(&self, name: Name, worker: WorkerId) {
        *self.alias.write().unwrap_or_else(PoisonError::into_inner) = name;
        self.worker.store(worker.0, Ordering::Release);
    }

    pub fn worker(&self) -> WorkerId {
        WorkerId(self.worker.load(Ordering::Acquire))
    }

    /// `true` if this worker's lease has not ended as far as it knows.
    pub fn is_believed(&self) -> bool {
        self.clock.now().as_micros() < self.believed_until.load(Ordering::Acquire)
    }

    /// The queues and lanes that this worker could run instead of continuing with the instances that it holds.
    pub fn serves(&self) -> Vec<(Name, Vec<Lane>)> {
        let code = self.code();
        code.queues
            .iter()
            .map(|queue| (queue.clone(), code.lanes.clone()))
            .collect()
    }

    /// Sleeps by the engine's clock, or until the engine stops.
    pub async fn pause(&self, time: Duration) -> ControlFlow<()> {
        self.pause_until(&self.stop, time).await
    }

    /// Sleeps by the engine's clock, or until `end` is cancelled.
    pub async fn pause_until(&self, end: &CancellationToken, time: Duration) -> ControlFlow<()> {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            tokio::select! {
                () = end.cancelled() => return ControlFlow::Break(()),
                () = self.clock.sleep_until(until) => {}
            }
        }
        if end.is_cancelled() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Configures an engine: its code and the queues that it serves.
///
/// Created by [`Abide::engine`](crate::Abide::engine).
#[must_use = "an engine runs nothing before `.start().await`"]
#[derive(Clone)]
pub struct EngineBuilder {
    committer: Committer,
    commands: Submit<Deliveries>,
    limits: Limits,
    settings: Settings,
    named: Result<(), Refusal>,
    runners: Vec<Arc<dyn Runner>>,
    may_be_empty: bool,
}

impl EngineBuilder {
    pub(crate) fn new(
        committer: Committer,
        commands: Submit<Deliveries>,
        limits: Limits,
        settings: Settings,
    ) -> Self {
        Self {
            committer,
            commands,
            limits,
            settings,
            named: Ok(()),
            runners: Vec::new(),
            may_be_empty: false,
        }
    }

    pub(crate) fn runner(mut self, make: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Runner>) -> Self {
        self.runners.push(make(self.committer.store().clone()));
        self
    }

    /// `true` if there is already code for this machine and version.
    pub(crate) fn has(&self, declared: &Declared) -> bool {
        let lane = |one: &Declared| (one.machine.clone(), one.version);
        let mut known = self
            .runners
            .iter()
            .filter_map(|runner| runner.declared().ok());
        known.any(|(one, _)| lane(&one) == lane(declared))
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Serves a queue, with at most `concurrency` of its steps running at a time. Without a call of this, the engine
    /// serves the queues that its machines declare, with 64 each. [`start`](Self::start) refuses a concurrency of 0.
    pub fn queue(mut self, name: &str, concurrency: usize) -> Self {
        match Name::new(name) {
            Ok(name) if concurrency == 0 => self.named = Err(without_concurrency(&name)),
            Ok(name) => {
                self.settings.queues.insert(name, concurrency);
            }
            Err(refusal) => self.named = Err(refusal),
        }
        self
    }

    /// Lets the engine start without a machine, workflow, graph or job. [`start`](Self::start) refuses that otherwise,
    /// because such an engine runs no step. It still fires timers, takes back the claims of dead workers, carries out
    /// the outbox and deletes what is older than the retention. Use it in a process beside workers that run elsewhere.
    pub fn without_code(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    /// Sets the worker's name. A worker that restarts under its name takes back at once what it held when it died. Two
    /// live workers must not share a name. Default: a new name each time.
    pub fn name(mut self, name: &str) -> Self {
        match Name::new(name) {
            Ok(name) => self.settings.name = name,
            Err(refusal) => self.named = Err(refusal),
        }
        self
    }

    /// Sets the name of this build, for example `"shop 1.4.2"`. An instance that a build cannot run, because it does
    /// not know a step or cannot read a state, is left to workers of other builds, and this build does not claim it
    /// again. Different builds must have different names. Default: the file name of the program and a hash of that
    /// file, so that copies of one program are one build.
    pub fn build(mut self, build: &str) -> Self {
        match Name::new(build) {
            Ok(build) => self.settings.build = Some(build),
            Err(refusal) => self.named = Err(refusal),
        }
        self
    }

    /// Sets how long after its last heartbeat a worker is considered dead. Default: 10 s; minimum: 100 ms. A worker
    /// sends three heartbeats in that time, so it must be stalled for two thirds of it before others take what it
    /// holds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(leases::ENGINE_MIN);
        self
    }

    /// Sets how often the engine polls for work when no notification arrives. Default: 5 s.
    pub fn poll(mut self, every: Duration) -> Self {
        self.settings.poll = every.max(Duration::from_millis(10));
        self
    }

    /// Sets how long a shutdown waits for running steps. Default: 30 s. Steps that have not ended by then are given
    /// back.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// Sets how long finished instances are kept. Default: seven days.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Sets the maximum number of outcomes, and of claims, in one transaction. Default: 500.
    pub fn batch(mut self, most: usize) -> Self {
        self.settings.batch = most.clamp(1, 5_000);
        self
    }

    /// Sets how many steps of one instance may follow each other without going through the queue, and for how long.
    /// Default: 100 steps and one second. In any case each step is committed before the next one begins.
    pub fn run_ahead(mut self, steps: u32, time: Duration) -> Self {
        (self.settings.chain_steps, self.settings.chain_time) = (steps, time);
        self
    }

    /// Sets how many waiting workflows keep their code in memory, so that it need not be replayed when they continue.
    /// Default: 1,000. Lower values, including 0, only cost time.
    pub fn workflows_kept(mut self, most: usize) -> Self {
        self.settings.workflows_kept = most;
        self
    }

    /// Checks this code against the open instances. Reads the states of the newest 100 open instances of each of its
    /// machines and jobs, and replays the histories of the newest 100 of each workflow. It claims, declares and changes
    /// nothing, so the new build can run it beside the old one before a deploy. It does not check the arguments of
    /// signals, because a machine reads those in its steps.
    ///
    /// ```
    /// # use abide::{Abide, Job};
    /// # const RESIZE: Job<String, usize> = Job::new("resize");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let abide = Abide::open("memory:").await?;
    /// let engine = abide.engine().job(RESIZE, |path: String| async move { Ok(path.len()) });
    /// let check = engine.check().await?;
    /// for one in &check.unfit {
    ///     eprintln!("{} {} would be blocked: {}", one.machine, one.id, one.problem);
    /// }
    /// assert!(check.fits());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Check, Error> {
        self.named.clone()?;
        let mut found = Check::default();
        for runner in &self.runners {
            check::check(&**self.committer.store(), &**runner, &mut found).await?;
        }
        Ok(found)
    }

    /// Starts the engine: declares its machines, registers the worker, and begins to claim.
    ///
    /// Errors: [`Refused`](Error::Refused) if nothing is registered and it is not [`without_code`](Self::without_code),
    /// if something is registered twice, or if a queue has a concurrency of 0.
    pub async fn start(mut self) -> Result<Engine, Error> {
        self.named?;
        let mut runners: HashMap<Lane, Arc<dyn Runner>> = HashMap::new();
        let mut declared = Vec::new();
        let mut contracts = Vec::new();
        for runner in self.runners {
            let runner = runner.for_engine(&self.settings);
            let (one, contract) = runner.declared()?;
            contracts.extend(contract);
            let lane = Lane {
                machine: one.machine.clone(),
                version: one.version,
            };
            if runners.insert(lane, runner).is_some() {
                let problem = format!(
                    "machine {} version {} is registered twice; register it once, or give one of them another version",
                    one.machine, one.version
                );
                return Err(Refusal::BadEngine { problem }.into());
            }
            declared.push(one);
        }
        if declared.is_empty() && !self.may_be_empty {
            let problem = "nothing is registered, so it would run nothing; call `.machine(…)`, `.workflow(…)`, `.graph(…)` or \
                           `.job(…)` before `.start()`, or `.without_code()` if it is to fire timers and clean up only"
                .to_owned();
            return Err(Refusal::BadEngine { problem }.into());
        }
        serve_declared_queues(&mut self.settings, &declared);

        let store = self.committer.store().clone();
        let clock = store.clock();
        let name = self.settings.name.clone();
        let queues = self.settings.queues.keys().cloned().collect();
        let shared = Arc::new(Shared {
            store,
            committer: self.committer,
            reclaiming: tokio::sync::Mutex::new(Bulk::new(AT_ONCE)),
            clock,
            settings: self.settings,
            commands: self.commands,
            code: RwLock::new(Arc::new(Code::new(runners, queues))),
            alias: RwLock::new(name),
            worker: AtomicI64::new(0),
            believed_until: AtomicI64::new(0),
            believed_again: Notify::new(),
            counters: Counters::default(),
            first_landed: CancellationToken::new(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            over: CancellationToken::new(),
        });
        // Listening begins before the first read, so that no change is missed between the two.
        let notifications = shared.store.listen();
        let due_notifications = shared.store.listen();
        let blocked_notifications = shared.store.listen();
        let declare = Op::Declare {
            machines: declared,
            contracts,
        };
        shared.store.run(Arc::from([declare])).await?;
        lease::register(&shared, shared.settings.name.clone()).await?;
        lease::take_up(&shared).await;
        release::release_at_start(&shared, shared.lanes()).await;
        let heartbeat = heartbeat::start(&shared).await?;
        let (control, control_requests) = mpsc::unbounded_channel();
        let mut tasks = vec![
            tokio::spawn(Dispatcher::new(shared.clone(), notifications, control_requests).run()),
            tokio::spawn(timers::keep_time(shared.clone(), due_notifications)),
            heartbeat,
            tokio::spawn(lease::keep_reclaiming(shared.clone())),
            tokio::spawn(release::keep_releasing(
                shared.clone(),
                blocked_notifications,
            )),
            tokio::spawn(after_first(
                shared.clone(),
                retention::keep_swept(shared.clone()),
            )),
            tokio::spawn(unserved::keep_watch(shared.clone())),
        ];
        if shared.store.outbox_poll().is_some() {
            let (store, stop) = (shared.store.clone(), shared.stop.clone());
            let taking = outbox::keep_taken(store, stop);
            tasks.push(tokio::spawn(after_first(shared.clone(), taking)));
        }
        Ok(Engine {
            shared,
            limits: self.limits,
            control,
            tasks,
        })
    }
}

/// Runs a task that is not urgent once the first transaction of the dispatcher is over: at the start, the first claims
/// get the connections that are open already.
async fn after_first(shared: Arc<Shared>, task: impl Future<Output = ()>) {
    tokio::select! {
        () = shared.first_landed.cancelled() => {}
        () = shared.stop.cancelled() => {}
    }
    task.await;
}

/// The refusal of a queue with a concurrency of 0.
fn without_concurrency(queue: &Name) -> Refusal {
    let problem = format!(
        "queue {:?} has a concurrency of 0, so nothing in it would run; give 1 at least, or leave the queue out",
        queue.as_str()
    );
    Refusal::BadEngine { problem }
}

fn serve_declared_queues(settings: &mut Settings, declared: &[Declared]) {
    if settings.queues.is_empty() {
        settings.queues.extend(
            declared
                .iter()
                .map(|one| (one.queue.clone(), Settings::CONCURRENCY)),
        );
    }
}

/// A running engine. Dropping it releases what it holds, as [`shutdown`](Self::shutdown) does, but without waiting.
pub struct Engine {
    shared: Arc<Shared>,
    limits: Limits,
    control: mpsc::UnboundedSender<Control>,
    tasks: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Stops claiming, lets running steps finish within the grace time, gives the rest back, and signs the worker off,
    /// so that others need not wait for its lease (rule 6.7).
    pub async fn shutdown(mut self) {
        self.shared.stop.cancel();
        for task in self.tasks.drain(..) {
            // A task that panicked has already reported it. The others are still waited for.
            let _ = task.await;
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The code for a lane.
    pub(crate) fn runner(&self, lane: &Lane) -> Option<Arc<dyn Runner>> {
        self.shared.runner(lane)
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds code while the engine runs, for machines that are already declared. Lanes that have code keep it. `true` if
    /// anything was new.
    pub(crate) async fn learn(&self, runners: Vec<Arc<dyn Runner>>) -> Result<bool, Error> {
        let mut lanes = Vec::with_capacity(runners.len());
        for runner in runners {
            let (declared, _) = runner.declared()?;
            let lane = Lane {
                machine: declared.machine,
                version: declared.version,
            };
            if self.shared.runner(&lane).is_none() {
                lanes.push((lane, runner.for_engine(&self.shared.settings)));
            }
        }
        if lanes.is_empty() {
            return Ok(false);
        }
        // The store is updated first: if that fails, nothing was added here, and the call can be repeated.
        let new: Vec<Lane> = lanes.iter().map(|(lane, _)| lane.clone()).collect();
        lease::enlist(&self.shared, Vec::new(), new).await?;
        let new = self.shared.learn(lanes);
        release::release_at_start(&self.shared, new).await;
        // If the engine has died, it does not poll for work.
        let _ = self.control.send(Control::Poll);
        Ok(true)
    }

    /// Serves one more queue from now on, with at most `concurrency` of its steps running at a time. A queue that it
    /// already serves stays as it is. A concurrency of 0 is refused.
    pub async fn serve(&self, queue: Name, concurrency: usize) -> Result<(), Error> {
        if concurrency == 0 {
            return Err(without_concurrency(&queue).into());
        }
        if self.shared.queues().contains(&queue) {
            return Ok(());
        }
        lease::enlist(&self.shared, vec![queue.clone()], Vec::new()).await?;
        if self.shared.serve(&queue) {
            // If the engine has died, it serves nothing.
            let _ = self.control.send(Control::Serve(queue, concurrency));
        }
        Ok(())
    }

    /// Counters of the engine's work so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }

    /// The worker's name.
    pub fn name(&self) -> &Name {
        &self.shared.settings.name
    }

    /// Looks for work at once, and waits until nothing is left to run. Returns the total number of claims by then.
    pub(crate) async fn idle(&self) -> u64 {
        let (reply, idle) = oneshot::channel();
        if self.control.send(Control::WhenIdle(reply)).is_ok() {
            // If the engine has died, it is idle.
            let _ = idle.await;
        }
        self.stats().claimed
    }

    /// `true` if a test killed the engine.
    pub(crate) fn is_dead(&self) -> bool {
        self.shared.kill.is_cancelled()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
