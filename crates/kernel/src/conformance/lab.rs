//! A store under test whose clock the test moves, and the few calls that every test makes.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    BarrierNumber, Cancel, Child, Claim, Claimed, Command, CommandId, Commit, Committed, Contract,
    Declared, Delivered, Entry, Instance, InstanceId, Lane, Limits, Name, NewCommand, Operated,
    Outcome, Refusal, Start, Started, Status, Timestamp, Verdict, Worker, WorkerId,
};

use super::build::{adding, commit, lane, name, signal, under, wait};
use super::invariants::violations;
use crate::{
    Answer, ClaimRequest, Clock, CommandFilter, Error, ManualClock, NewWorker, Op, Result, Store,
    Target,
};

/// The clock and the limits that a store is made with.
#[non_exhaustive]
pub struct Setup {
    /// The clock that it takes the time from.
    pub clock: Arc<dyn Clock>,
    /// The limits it is to keep.
    pub limits: Limits,
}

/// A store to be tested, new and empty.
pub struct Subject {
    store: Arc<dyn Store>,
    caller: Option<String>,
    held: Vec<Box<dyn Any>>,
}

impl Subject {
    /// Tests that store.
    pub fn new(store: impl Store) -> Self {
        Self::of(Arc::new(store))
    }

    /// Tests that store, which is shared already.
    pub fn of(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            caller: None,
            held: Vec::new(),
        }
    }

    /// Behind a server, which knows its caller by that name.
    #[must_use]
    pub fn known_as(mut self, caller: &str) -> Self {
        self.caller = Some(caller.to_owned());
        self
    }

    /// With something that must live as long as the store does and is dropped after it, like its directory.
    #[must_use]
    pub fn with(mut self, held: impl Any) -> Self {
        self.held.push(Box::new(held));
        self
    }
}

/// The longest that a test may take, in real time: a store that loses something must not make it hang.
const PATIENCE: Duration = Duration::from_secs(120);

/// The most waiters of a type.
pub(super) const WAITERS: usize = 20;

/// The most events that a wait looks back at, and the most bytes of them.
pub(super) const LOOKBACK: usize = 1_300;
pub(super) const LOOKBACK_BYTES: usize = 1 << 20;

/// The limits that all tests run under: the plain ones, an inbox that is soon full, few waiters of a type, and a lookback
/// that soon ends.
pub(super) fn limits() -> Limits {
    Limits {
        inbox_pending: 100,
        waiters_per_type: WAITERS,
        lookback_events: LOOKBACK,
        lookback_bytes: LOOKBACK_BYTES,
        ..Limits::default()
    }
}

/// Makes a store, runs one test on it, checks its invariants, and closes it.
pub async fn check(make: impl AsyncFnOnce(Setup) -> Subject, test: impl AsyncFnOnce(Lab)) {
    let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
    let subject = make(Setup {
        clock: Arc::new(clock.clone()),
        limits: limits(),
    })
    .await;
    let lab = Lab {
        store: subject.store.clone(),
        clock,
        caller: subject.caller.clone(),
    };
    let tested = tokio::time::timeout(PATIENCE, test(lab)).await;
    assert!(tested.is_ok(), "the test was not over after {PATIENCE:?}");
    match violations(subject.store.as_ref()).await {
        Ok(found) => assert!(
            found.is_empty(),
            "the test left what must not be:\n{}",
            found.join("\n")
        ),
        Err(Error::Closed) => {}
        Err(error) => panic!("the store cannot be read: {error}"),
    }
    subject.store.close().await;
}

/// A store under test, whose clock the test moves.
#[derive(Clone)]
pub struct Lab {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its clock, which stands still until it is moved.
    pub clock: ManualClock,
    /// The name by which a server knows the callers of the store, when it is behind one.
    pub(super) caller: Option<String>,
}

/// The lease of a worker of these tests.
pub const LEASE: Duration = Duration::from_secs(30);
/// A little more than that.
pub(super) const OVER_LEASE: Duration = Duration::from_secs(31);

impl Lab {
    /// The children of the first barrier of an instance.
    pub(super) async fn children(&self, parent: InstanceId) -> Vec<Child> {
        let children = self.store.children(parent, BarrierNumber(1)).await;
        children.unwrap()
    }

    /// The source, and the claim beside it, that are recorded of what is sent with these (rule 7.3). A caller of the
    /// store itself names the source; a server sets it, and keeps what its caller sent as a claim.
    pub(super) fn recorded<'s>(
        &'s self,
        source: &'s str,
        claimed: Option<&'s str>,
    ) -> (Option<&'s str>, Option<&'s str>) {
        match &self.caller {
            None => (Some(source), claimed),
            Some(caller) => (Some(caller), Some(source)),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Runs operations in one transaction.
    pub(super) async fn try_run(&self, ops: Vec<Op>) -> Result<Vec<Answer>> {
        self.store.run(ops.into()).await
    }

    pub(super) async fn run(&self, op: Op) -> Answer {
        let answers = self
            .try_run(vec![op])
            .await
            .expect("the operation is taken");
        answers
            .into_iter()
            .next()
            .expect("each operation has its answer")
    }

    /// Starts many, in one call; what became of each.
    pub(super) async fn starts(&self, starts: Vec<Start>) -> Vec<Result<Started, Refusal>> {
        match self.run(Op::Start(starts)).await {
            Answer::Started(each) => each,
            other => panic!("a start is not answered with {other:?}"),
        }
    }

    /// Starts many that are all new.
    pub(super) async fn start_all(&self, starts: Vec<Start>) -> Vec<InstanceId> {
        let each = self.starts(starts).await.into_iter();
        each.map(|one| match one {
            Ok(Started::New(id)) => id,
            other => panic!("it should be new, and is {other:?}"),
        })
        .collect()
    }

    /// Starts one that is new.
    pub(super) async fn start(&self, start: Start) -> InstanceId {
        self.start_all(vec![start]).await[0]
    }

    /// Makes machines known.
    pub(super) async fn declare(&self, machines: Vec<Declared>) {
        let contracts = Vec::new();
        self.run(Op::Declare {
            machines,
            contracts,
        })
        .await;
    }

    /// Declares the machine `m` under that contract.
    pub(super) async fn under(&self, contract: Contract) {
        let machines = vec![under(&contract)];
        let contracts = vec![contract];
        self.run(Op::Declare {
            machines,
            contracts,
        })
        .await;
    }

    /// Delivers many, in one call; what became of each.
    pub(super) async fn deliver_all(
        &self,
        deliveries: Vec<NewCommand>,
    ) -> Vec<Result<Delivered, Refusal>> {
        match self.run(Op::Deliver(deliveries)).await {
            Answer::Delivered(each) => each,
            other => panic!("a delivery is not answered with {other:?}"),
        }
    }

    pub(super) async fn deliver(&self, delivery: NewCommand) -> Delivered {
        let mut each = self.deliver_all(vec![delivery]).await;
        each.pop()
            .expect("the delivery has its answer")
            .expect("the delivery is decided over")
    }

    /// Delivers what is accepted and new; its record.
    pub(super) async fn accept(&self, delivery: NewCommand) -> Command {
        let delivered = self.deliver(delivery).await;
        let good = matches!(delivered.verdict, Verdict::Received | Verdict::Accepted);
        assert!(good && !delivered.duplicate, "{delivered:?}");
        *delivered.record.expect("what is accepted has a record")
    }

    /// Sends a signal that is accepted; its record.
    pub(super) async fn signal(&self, target: impl Into<Target>, text: &str) -> Command {
        self.accept(signal(target, text)).await
    }

    /// Sends the update `add` that is accepted; its record.
    pub(super) async fn update(&self, target: impl Into<Target>) -> Command {
        self.accept(adding(target, 1)).await
    }

    /// The record of a message now.
    pub(super) async fn record(&self, id: CommandId) -> Command {
        let found = self.store.records(&[id]).await;
        let found = found.expect("the store can be read").pop();
        found.expect("the record is there")
    }

    /// All records that meet a filter, oldest first.
    pub(super) async fn records(&self, filter: CommandFilter) -> Vec<Command> {
        let page = self.store.commands(&filter, None, 1000).await;
        let mut items = page.expect("the store can be read").items;
        items.reverse();
        items
    }

    /// The ids of the commands that are pending in an inbox.
    pub(super) async fn inbox(&self, id: InstanceId) -> Vec<CommandId> {
        let inbox = self.store.inbox(id).await.expect("the store can be read");
        inbox.iter().map(|command| command.id).collect()
    }

    /// Starts one, runs its first step, and lets it wait; it must be what is claimed first.
    pub(super) async fn parked(
        &self,
        worker: WorkerId,
        start: Start,
        signals: &[&str],
        timeout_ms: Option<u64>,
    ) -> InstanceId {
        let id = self.start(start).await;
        let claimed = self.claim(worker).await;
        assert_eq!(claimed.claim.id(), id);
        self.commit(claimed.claim, wait(signals, timeout_ms)).await;
        id
    }

    /// The one answer to an operator's request.
    pub(super) async fn operate(&self, op: Op) -> Operated {
        match self.run(op).await {
            Answer::Operated(each) => each[0],
            other => panic!("an operator is not answered with {other:?}"),
        }
    }

    pub(super) async fn cancel(&self, cancel: Cancel) -> Operated {
        self.operate(Op::Cancel(vec![cancel])).await
    }

    pub(super) async fn restart(&self, target: impl Into<Target>) -> Operated {
        self.operate(Op::Restart(vec![(target.into(), None)])).await
    }

    /// Restarts what can be restarted; the new run.
    pub(super) async fn restarted(&self, target: impl Into<Target>) -> InstanceId {
        match self.restart(target).await {
            Operated::Restarted { id, .. } => id,
            other => panic!("it should be restarted, and is {other:?}"),
        }
    }

    pub(super) async fn repair(&self, target: impl Into<Target>) -> Operated {
        self.operate(Op::Repair(vec![target.into()])).await
    }

    /// Registers a worker.
    pub(super) async fn register(&self, name: &str) -> Worker {
        let worker = NewWorker {
            name: self::name(name),
            lease: LEASE,
            queues: vec![self::name("default")],
            lanes: vec![lane("m", 1)],
            build: None,
        };
        match self.run(Op::Register(worker)).await {
            Answer::Registered(worker) => worker,
            other => panic!("a registration is not answered with {other:?}"),
        }
    }

    pub(super) async fn worker(&self, name: &str) -> WorkerId {
        self.register(name).await.id
    }

    /// Claims from that queue for these lanes.
    pub(super) async fn claim_from(
        &self,
        worker: WorkerId,
        queue: &str,
        lanes: Vec<Lane>,
        limit: usize,
    ) -> Vec<Claimed> {
        let request = ClaimRequest {
            worker,
            queue: name(queue),
            lanes,
            limit,
            lease: None,
        };
        match self.run(Op::Claim(request)).await {
            Answer::Claimed(claimed) => claimed,
            other => panic!("a claim is not answered with {other:?}"),
        }
    }

    /// Claims instances of the machine `m` from the queue `default`.
    pub(super) async fn claim_some(&self, worker: WorkerId, limit: usize) -> Vec<Claimed> {
        self.claim_from(worker, "default", vec![lane("m", 1)], limit)
            .await
    }

    pub(super) async fn claim_ids(&self, worker: WorkerId, limit: usize) -> Vec<InstanceId> {
        ids(&self.claim_some(worker, limit).await)
    }

    /// Claims the first there is.
    pub(super) async fn claim(&self, worker: WorkerId) -> Claimed {
        self.claim_some(worker, 1)
            .await
            .pop()
            .expect("something is runnable")
    }

    pub(super) async fn commit_all(&self, commits: Vec<Commit>) -> Vec<Committed> {
        self.commit_serving(commits, Vec::new()).await
    }

    /// Commits for a worker that serves these queues.
    pub(super) async fn commit_serving(
        &self,
        commits: Vec<Commit>,
        serves: Vec<(Name, Vec<Lane>)>,
    ) -> Vec<Committed> {
        match self.run(Op::Commit { commits, serves }).await {
            Answer::Committed(each) => each,
            other => panic!("a commit is not answered with {other:?}"),
        }
    }

    pub(super) async fn commit(&self, claim: Claim, outcome: Outcome) -> Committed {
        self.commit_all(vec![commit(claim, outcome)])
            .await
            .pop()
            .expect("the commit has its answer")
    }

    /// Claims the first there is and commits that outcome; where it then stands.
    pub(super) async fn step(&self, worker: WorkerId, outcome: Outcome) -> Status {
        let claimed = self.claim(worker).await;
        match self.commit(claimed.claim, outcome).await {
            Committed::Moved(status) => status,
            other => panic!("the outcome should be taken, and is {other:?}"),
        }
    }

    /// The number of rows that an operation touched; true if there may be more.
    pub(super) async fn touch(&self, op: Op) -> (usize, bool) {
        match self.run(op).await {
            Answer::Touched { count, more } | Answer::Fired { count, more, .. } => (count, more),
            other => panic!("it is not answered with {other:?}"),
        }
    }

    /// Makes runnable what is due; how many there were.
    pub(super) async fn fire(&self) -> usize {
        self.touch(Op::Fire { limit: 1000 }).await.0
    }

    /// Takes from dead workers what they held; how many that were.
    pub(super) async fn reclaim(&self) -> usize {
        self.touch(Op::Reclaim { limit: 1000 }).await.0
    }

    pub(super) async fn find(&self, target: impl Into<Target>) -> Option<Instance> {
        self.store
            .get(&target.into())
            .await
            .expect("the store can be read")
    }

    pub(super) async fn get(&self, id: InstanceId) -> Instance {
        self.find(id).await.expect("the instance is there")
    }

    pub(super) async fn status(&self, id: InstanceId) -> Status {
        self.get(id).await.status
    }

    /// The events of a history after `started`.
    pub(super) async fn events(&self, id: InstanceId) -> Vec<Entry> {
        let rows = self
            .store
            .history(id, 0, 1000)
            .await
            .expect("the store can be read");
        rows.iter()
            .flat_map(|row| row.unpack().expect("the history can be read"))
            .collect()
    }

    /// Their kinds.
    pub(super) async fn kinds(&self, id: InstanceId) -> Vec<&'static str> {
        self.events(id)
            .await
            .iter()
            .map(|entry| entry.what.kind())
            .collect()
    }
}

/// The messages, by their ids.
pub(super) fn command_ids(commands: &[Command]) -> Vec<CommandId> {
    commands.iter().map(|command| command.id).collect()
}

/// The instances claimed, in order.
pub(super) fn ids(claimed: &[Claimed]) -> Vec<InstanceId> {
    claimed.iter().map(|one| one.claim.id()).collect()
}
