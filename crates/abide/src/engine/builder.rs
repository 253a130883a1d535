//! An engine: how it is put together, started and stopped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use abide_core::model::{Declared, InstanceId, Lane, Limits, Name, Refusal, WorkerId};
use abide_kernel::committer::{Bulk, Committer, Mail, Submit};
use abide_kernel::{Answer, Clock, Op, Store};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::dispatch::{Command, Dispatcher};
use super::settings::Settings;
use super::stats::Counters;
use super::{Retention, Runner, Stats, lease, retention, timers};
use crate::Error;

/// What the tasks of one engine share.
pub(crate) struct Shared {
    pub store: Arc<dyn Store>,
    pub committer: Committer,
    /// What is passed over when claims are taken from dead workers.
    pub reclaiming: tokio::sync::Mutex<Bulk>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
    pub mail: Submit<Mail>,
    code: RwLock<Arc<Code>>,
    /// The name that it is known under: another than its own when that was taken from it.
    alias: RwLock<Name>,
    pub worker: AtomicI64,
    /// Until when this worker is believed to live, in microseconds; past that, it has no business claiming anything.
    pub believed_until: AtomicI64,
    /// Told when it is believed again, and may claim what it has let be.
    pub believed_again: Notify,
    pub counters: Counters,
    /// No more claims; finish what runs.
    pub stop: CancellationToken,
    /// Drop what runs.
    pub kill: CancellationToken,
    /// Nothing runs any more: the lease may end.
    pub over: CancellationToken,
}

/// What an engine has code for, and the queues that it serves. Both may grow while it runs.
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

    /// What this worker has code for.
    pub fn lanes(&self) -> Vec<Lane> {
        self.code().lanes.clone()
    }

    /// The code for a machine in a version.
    pub fn runner(&self, lane: &Lane) -> Option<Arc<dyn Runner>> {
        self.code().runners.get(lane).cloned()
    }

    /// Takes code that is not there already; for what it is.
    fn learn(&self, runners: Vec<(Lane, Arc<dyn Runner>)>) -> Vec<Lane> {
        let mut code = self.code.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = code.runners.clone();
        let mut new = Vec::new();
        for (lane, runner) in runners {
            if let Entry::Vacant(place) = known.entry(lane) {
                new.push(place.key().clone());
                place.insert(runner);
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

    /// Takes one more queue; whether it is new.
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

    /// The name that this worker is known under.
    pub fn alias(&self) -> Name {
        let alias = self.alias.read().unwrap_or_else(PoisonError::into_inner);
        alias.clone()
    }

    /// Notes as whom this worker was registered.
    pub fn registered(&self, name: Name, worker: WorkerId) {
        *self.alias.write().unwrap_or_else(PoisonError::into_inner) = name;
        self.worker.store(worker.0, Ordering::Release);
    }

    pub fn worker(&self) -> WorkerId {
        WorkerId(self.worker.load(Ordering::Acquire))
    }

    /// Whether this worker is still believed to live.
    pub fn is_believed(&self) -> bool {
        self.clock.now().as_micros() < self.believed_until.load(Ordering::Acquire)
    }

    /// What this worker could run instead of going on with what it holds.
    pub fn serves(&self) -> Vec<(Name, Vec<Lane>)> {
        let code = self.code();
        code.queues
            .iter()
            .map(|queue| (queue.clone(), code.lanes.clone()))
            .collect()
    }

    /// Sleeps by the engine's clock, or until it stops.
    pub async fn pause(&self, time: Duration) -> ControlFlow<()> {
        self.pause_until(&self.stop, time).await
    }

    /// Sleeps by the engine's clock, or until that end.
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

/// Puts an engine together: what it has code for, which queues it serves.
///
/// Made by [`Abide::engine`](crate::Abide::engine).
#[must_use = "an engine runs nothing before `.start().await`"]
#[derive(Clone)]
pub struct EngineBuilder {
    committer: Committer,
    mail: Submit<Mail>,
    limits: Limits,
    settings: Settings,
    named: Result<(), Refusal>,
    runners: Vec<Arc<dyn Runner>>,
}

impl EngineBuilder {
    pub(crate) fn new(
        committer: Committer,
        mail: Submit<Mail>,
        limits: Limits,
        settings: Settings,
    ) -> Self {
        Self {
            committer,
            mail,
            limits,
            settings,
            named: Ok(()),
            runners: Vec::new(),
        }
    }

    pub(crate) fn runner(mut self, make: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Runner>) -> Self {
        self.runners.push(make(self.committer.store().clone()));
        self
    }

    /// Whether there is code for that machine and version already.
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

    /// Serves a queue, with at most that many of its steps running at once. Without any, it serves the queues that its
    /// machines declare, with 64 each.
    pub fn queue(mut self, name: &str, concurrency: usize) -> Self {
        match Name::new(name) {
            Ok(name) => {
                self.settings.queues.insert(name, concurrency.max(1));
            }
            Err(refusal) => self.named = Err(refusal),
        }
        self
    }

    /// The worker's name. One that is started again under its name takes back at once what it held when it died; a name
    /// must not be shared by two that live. Unless given: a new one each time.
    pub fn name(mut self, name: &str) -> Self {
        match Name::new(name) {
            Ok(name) => self.settings.name = name,
            Err(refusal) => self.named = Err(refusal),
        }
        self
    }

    /// How long after its last sign of life a worker is taken for dead; 10 s unless given, 100 ms at least. It gives one
    /// three times in that time, so that it must be held up for two thirds of it before others take what it holds.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// How often to look for work when nobody tells of any: the floor under the notifications; 5 s unless given.
    pub fn poll(mut self, every: Duration) -> Self {
        self.settings.poll = every.max(Duration::from_millis(10));
        self
    }

    /// How long a shutdown waits for the steps that run; 30 s unless given. What has not ended then is given back.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long finished instances are kept; seven days unless given.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// The most outcomes, and the most claims, of one transaction; 500 unless given.
    pub fn batch(mut self, most: usize) -> Self {
        self.settings.batch = most.clamp(1, 5_000);
        self
    }

    /// How many steps of one instance may follow each other without going through the queue, and for how long; 100 and
    /// one second unless given. Each is committed before the next begins either way.
    pub fn run_ahead(mut self, steps: u32, time: Duration) -> Self {
        (self.settings.chain_steps, self.settings.chain_time) = (steps, time);
        self
    }

    /// How many workflows that wait keep their code in memory, so that it need not be replayed when they go on; 1,000
    /// unless given. Fewer, or none, change nothing but time.
    pub fn workflows_kept(mut self, most: usize) -> Self {
        self.settings.workflows_kept = most;
        self
    }

    /// Starts it: declares its machines, registers the worker, and begins to claim.
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
                    "machine {} version {} is registered twice",
                    one.machine, one.version
                );
                return Err(Error::Mismatch {
                    what: "the engine",
                    problem,
                });
            }
            declared.push(one);
        }
        serve_declared_queues(&mut self.settings, &declared);

        let store = self.committer.store().clone();
        let clock = store.clock();
        let name = self.settings.name.clone();
        let queues = self.settings.queues.keys().cloned().collect();
        let shared = Arc::new(Shared {
            store,
            committer: self.committer,
            reclaiming: tokio::sync::Mutex::new(Bulk::new(lease::BATCH)),
            clock,
            settings: self.settings,
            mail: self.mail,
            code: RwLock::new(Arc::new(Code::new(runners, queues))),
            alias: RwLock::new(name),
            worker: AtomicI64::new(0),
            believed_until: AtomicI64::new(0),
            believed_again: Notify::new(),
            counters: Counters::default(),
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            over: CancellationToken::new(),
        });
        // Listening begins before the first look, so that nothing can fall between the two.
        let (news, due_news) = (shared.store.listen(), shared.store.listen());
        let declare = Op::Declare {
            machines: declared,
            contracts,
        };
        shared.store.run(Arc::from([declare])).await?;
        lease::register(&shared, shared.settings.name.clone()).await?;
        lease::take_up(&shared).await;
        release_blocked(&shared, shared.lanes()).await;
        let (commands, inbox) = mpsc::unbounded_channel();
        let tasks = vec![
            tokio::spawn(Dispatcher::new(shared.clone(), news, inbox).run()),
            tokio::spawn(timers::keep_time(shared.clone(), due_news)),
            tokio::spawn(lease::keep_alive(shared.clone())),
            tokio::spawn(lease::keep_reclaiming(shared.clone())),
            tokio::spawn(retention::keep_swept(shared.clone())),
        ];
        Ok(Engine {
            shared,
            limits: self.limits,
            commands,
            tasks,
        })
    }
}

/// Lets workflows be tried again for which this worker may have the code that fits (rule 12.4). An engine starts without
/// it, too, when the database would not have it now: it is then asked again.
async fn release_blocked(shared: &Arc<Shared>, lanes: Vec<Lane>) {
    let Err(error) = release_once(shared, &lanes).await else {
        return;
    };
    tracing::warn!(%error, "workflows that are blocked are let go on later");
    let shared = shared.clone();
    tokio::spawn(async move {
        while shared.pause(shared.settings.poll).await.is_continue() {
            if release_once(&shared, &lanes).await.is_ok() {
                return;
            }
        }
    });
}

async fn release_once(shared: &Shared, lanes: &[Lane]) -> Result<(), Error> {
    const AT_ONCE: usize = 500;
    if lanes.is_empty() {
        return Ok(());
    }
    let mut after = InstanceId(0);
    let mut bulk = Bulk::new(AT_ONCE);
    loop {
        let release = |limit| Op::ReleaseBlocked {
            lanes: lanes.to_vec(),
            after,
            limit,
        };
        match bulk.run(&shared.store, release).await? {
            Answer::Released {
                next: Some(next), ..
            } => after = next,
            _ => return Ok(()),
        }
    }
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

/// A running engine. Dropping it lets go of what it holds as [`shutdown`](Self::shutdown) does, but waits for nothing.
pub struct Engine {
    shared: Arc<Shared>,
    limits: Limits,
    commands: mpsc::UnboundedSender<Command>,
    tasks: Vec<JoinHandle<()>>,
}

impl Engine {
    /// Stops claiming, lets the steps that run finish, for as long as the grace time, gives the rest back, and signs
    /// the worker off, so that others need not wait for its lease (rule 6.7).
    pub async fn shutdown(mut self) {
        self.shared.stop.cancel();
        for task in self.tasks.drain(..) {
            // A task that panicked has said so already; the others are waited for all the same.
            let _ = task.await;
        }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    /// The code for a machine in a version.
    pub(crate) fn runner(&self, lane: &Lane) -> Option<Arc<dyn Runner>> {
        self.shared.runner(lane)
    }

    pub(crate) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes more code while it runs: machines that are declared already. What there is code for stays as it is; whether
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
        // Others are told first: who cannot be reached has learnt nothing, and may be asked again.
        let new: Vec<Lane> = lanes.iter().map(|(lane, _)| lane.clone()).collect();
        lease::enlist(&self.shared, Vec::new(), new).await?;
        let new = self.shared.learn(lanes);
        release_blocked(&self.shared, new).await;
        // An engine that has died looks for nothing.
        let _ = self.commands.send(Command::Look);
        Ok(true)
    }

    /// Serves one more queue from now on, with at most that many of its steps running at once. One that it serves already
    /// stays as it is.
    pub async fn serve(&self, queue: Name, concurrency: usize) -> Result<(), Error> {
        if self.shared.queues().contains(&queue) {
            return Ok(());
        }
        lease::enlist(&self.shared, vec![queue.clone()], Vec::new()).await?;
        if self.shared.serve(&queue) {
            // An engine that has died serves nothing.
            let _ = self
                .commands
                .send(Command::Serve(queue, concurrency.max(1)));
        }
        Ok(())
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.shared.counters.read()
    }

    /// The worker's name.
    pub fn name(&self) -> &Name {
        &self.shared.settings.name
    }

    /// Looks for work at once, and waits until there is none left to run; how much was claimed by then, in all.
    pub(crate) async fn idle(&self) -> u64 {
        let (reply, idle) = oneshot::channel();
        if self.commands.send(Command::WhenIdle(reply)).is_ok() {
            // An engine that has died is idle.
            let _ = idle.await;
        }
        self.stats().claimed
    }

    /// Whether it was made to die by a test.
    pub(crate) fn is_dead(&self) -> bool {
        self.shared.kill.is_cancelled()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
