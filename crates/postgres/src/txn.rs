//! A transaction in flight: statements are sent without waiting for the results of earlier ones.
//!
//! A write is encoded and sent, and its result is read later. A read waits for its own result, and so for all results
//! before it. BEGIN is sent with the first statement and COMMIT with the last, so a batch that loads, writes and
//! commits takes two round trips, however much it writes. Every result is checked: COMMIT itself reports success even
//! if an earlier statement failed and the server has rolled back.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_core::model::{CommandId, Epoch, InstanceId, Key, Lane, Name, Start};
use abide_kernel::{Error, EventPaths, Found, Op, Result, TypeTotal};
use futures_util::TryStreamExt;
use tokio_postgres::{Client, Error as DriverError, Row};

use crate::arrays::Forms;
use crate::begin::{Begin, COMMIT};
use crate::claim;
use crate::error::{Fate, classify};
use crate::lineage::Lineage;
use crate::locks::Held;
use crate::param::Param;
use crate::pool::overdue;
use crate::prepared::{self, Prepared};
use crate::waiters::{self, Probe};

/// The driver's result of a statement.
type Answered = std::result::Result<Vec<Row>, DriverError>;

/// A statement that was sent.
enum Sent<'c> {
    Waiting(Pin<Box<dyn Future<Output = Answered> + Send + 'c>>),
    Answered(Answered),
}

impl Sent<'_> {
    async fn answer(self) -> Answered {
        match self {
            Self::Waiting(answer) => answer.await,
            Self::Answered(answer) => answer,
        }
    }
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing is sent yet.
    Fresh,
    /// BEGIN was sent.
    Open,
    /// The transaction belongs to the host, which ends it.
    Host,
    /// COMMIT was sent.
    Committing,
}

/// A statement that only COMMIT can follow, so COMMIT is sent together with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// A claim, preceded by that many other claims. Its parents and children are read after the commit.
    Claim(usize),
    /// The first insert, of rows that cannot conflict.
    Insert,
    /// The renewal of a lease.
    Renewal,
}

/// A transaction in flight.
pub(crate) struct Transaction<'c> {
    client: &'c Client,
    prepared: Option<&'c Prepared>,
    /// The locks that it holds.
    pub(crate) held: Held,
    /// The text of BEGIN.
    begin: &'c str,
    stage: Stage,
    /// The last epoch of earlier generations of the database.
    pub(crate) epoch: Epoch,
    /// Statements whose results were not read yet, in the order of the results: an unread result blocks those behind
    /// it. A read of a queue that was sent ahead has the name of the queue.
    flight: VecDeque<(Option<Name>, Sent<'c>)>,
    /// The results of those reads of queues.
    ahead: VecDeque<(Name, Vec<Row>)>,
    /// The last statement of the transaction, if known: the current value, and the value at the start.
    last: Option<Last>,
    last_at_first: Option<Last>,
    /// `true` if the connection was closed before anything was sent.
    is_dead: bool,
    /// Number of partitions that were locked one by one.
    pub(crate) partitions_locked: usize,
    /// `true` if commands will be delivered. The statement that finds their targets then also draws ids for their
    /// records.
    pub(crate) delivers: bool,
    /// Rows that were locked when they were found, by id, until something else is locked.
    pub(crate) locked_ahead: Vec<abide_core::model::Row>,
    /// Unused ids for records, ascending.
    pub(crate) numbers: VecDeque<CommandId>,
    /// The types of events that will be published, and the types for which waiters will be opened. The statement that
    /// draws ids or locks rows also reads what is needed next for these types.
    pub(crate) published: BTreeSet<Name>,
    pub(crate) awaited: BTreeSet<Name>,
    /// The paths with waiters of the first types, and the paths that waits look back on, until waiters or paths are
    /// opened, closed or added.
    pub(crate) paths_ahead: Option<EventPaths>,
    /// The waiters for some index entries, until waiters are opened or closed.
    pub(crate) waiters_ahead: Option<(BTreeSet<Probe>, Vec<Row>)>,
    /// The keys and partitions of the waiting instances that were found. These never change.
    pub(crate) found_ahead: HashMap<InstanceId, Found>,
    /// The totals of the other types, until waiters are opened or closed.
    pub(crate) totals_ahead: Option<BTreeMap<Name, TypeTotal>>,
    /// The signals that were held for some keys when rows with these keys were inserted, until the next record is
    /// written.
    pub(crate) held_ahead: Option<(BTreeSet<Key>, Vec<Row>)>,
}

impl<'c> Transaction<'c> {
    /// Creates a transaction of the store that will run these operations.
    pub fn own(
        client: &'c Client,
        prepared: Option<&'c Prepared>,
        begin: &'c Begin,
        ops: &[Op],
        lineage: &Lineage,
    ) -> Self {
        let mut txn = Self::new(client, prepared, Stage::Fresh, ops);
        txn.epoch = lineage.epoch();
        txn.begin = match lineage.commits_async() {
            true => &begin.durable,
            false => &begin.store,
        };
        txn.last = last_of(ops);
        txn.last_at_first = txn.last;
        // Only for the first operation: later ones must see its writes.
        for (queue, lanes) in ops.first().map_or(&[][..], asks_for_waiting) {
            let found = txn.send(claim::WAITING, claim::waiting_params(queue, lanes));
            txn.flight.push_back((Some(queue.clone()), found));
        }
        txn
    }

    /// Creates a transaction that runs these operations inside the host's transaction. The host commits it.
    pub fn host(client: &'c Client, ops: &[Op]) -> Self {
        Self::new(client, None, Stage::Host, ops)
    }

    fn new(client: &'c Client, prepared: Option<&'c Prepared>, stage: Stage, ops: &[Op]) -> Self {
        Self {
            client,
            prepared,
            held: Held::default(),
            begin: "",
            stage,
            epoch: Epoch::default(),
            flight: VecDeque::new(),
            ahead: VecDeque::new(),
            last: None,
            last_at_first: None,
            is_dead: false,
            partitions_locked: 0,
            delivers: Op::each(ops).any(|op| matches!(op, Op::Deliver(_))),
            locked_ahead: Vec::new(),
            numbers: VecDeque::new(),
            published: waiters::published(ops),
            awaited: waiters::awaited(ops),
            paths_ahead: None,
            waiters_ahead: None,
            found_ahead: HashMap::new(),
            totals_ahead: None,
            held_ahead: None,
        }
    }

    /// Sends a statement that returns no rows, without waiting.
    pub fn write(&mut self, sql: &'static str, params: Vec<Param>) -> Result<()> {
        if self.stage == Stage::Committing {
            return Err(Error::Broken(
                "a statement came after the last of its transaction".into(),
            ));
        }
        let sent = self.send(sql, params);
        self.flight.push_back((None, sent));
        Ok(())
    }

    /// Sends a statement for that many rows, without waiting; it returns no rows.
    pub fn write_rows(&mut self, forms: Forms, rows: usize, params: Vec<Param>) -> Result<()> {
        let (sql, params) = forms.of(rows, params);
        self.write(sql, params)
    }

    /// Sends a statement for that many rows, and waits for those it returns.
    pub async fn read_rows(
        &mut self,
        forms: Forms,
        rows: usize,
        params: Vec<Param>,
    ) -> Result<Vec<Row>> {
        let (sql, params) = forms.of(rows, params);
        self.read(sql, params).await
    }

    /// Sends a statement and waits for its rows, which reflect all earlier writes.
    pub async fn read(&mut self, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>> {
        let sent = self.send(sql, params);
        self.land().await?;
        sent.answer().await.map_err(|error| self.failure(&error))
    }

    /// Sends two statements together and waits for the rows of both.
    pub async fn read_both(
        &mut self,
        first: (&'static str, Vec<Param>),
        second: (&'static str, Vec<Param>),
    ) -> Result<(Vec<Row>, Vec<Row>)> {
        let first = self.send(first.0, first.1);
        let second = self.send(second.0, second.1);
        self.land().await?;
        let first = first.answer().await.map_err(|error| self.failure(&error))?;
        let second = second
            .answer()
            .await
            .map_err(|error| self.failure(&error))?;
        Ok((first, second))
    }

    /// Sends three statements together and waits for the rows of all.
    pub async fn read_three(
        &mut self,
        statements: [(&'static str, Vec<Param>); 3],
    ) -> Result<[Vec<Row>; 3]> {
        let sent = statements.map(|(sql, params)| self.send(sql, params));
        self.land().await?;
        let mut answers = [const { Vec::new() }; 3];
        for (answer, sent) in answers.iter_mut().zip(sent) {
            *answer = sent.answer().await.map_err(|error| self.failure(&error))?;
        }
        Ok(answers)
    }

    /// Sends a statement that may be the last, and waits for its rows. If it is the last, COMMIT is sent with it.
    pub async fn read_last(
        &mut self,
        as_last: Last,
        sql: &'static str,
        params: Vec<Param>,
    ) -> Result<Vec<Row>> {
        let sent = self.send(sql, params);
        let commit = (self.last == Some(as_last)).then(|| self.send_commit());
        if let (Last::Claim(_), Some(Last::Claim(before))) = (as_last, self.last) {
            self.last = before.checked_sub(1).map(Last::Claim);
        }
        self.land().await?;
        let rows = sent.answer().await.map_err(|error| self.failure(&error))?;
        if let Some(commit) = commit {
            commit
                .answer()
                .await
                .map_err(|error| self.failure(&error))?;
        }
        Ok(rows)
    }

    /// The rows of a queue that were read when the transaction began; returned once.
    pub async fn read_ahead(&mut self, queue: &Name) -> Result<Option<Vec<Row>>> {
        self.land().await?;
        let seen = self.ahead.pop_front();
        Ok(seen
            .filter(|(looked_at, _)| looked_at == queue)
            .map(|(_, rows)| rows))
    }

    /// Commits, and checks all results that were not read yet. If this returns `Ok`, everything is durable.
    pub async fn commit(&mut self) -> Result<()> {
        if self.stage == Stage::Open {
            let commit = self.send_commit();
            self.flight.push_back((None, commit));
        }
        self.land().await
    }

    /// `true` if the host began the transaction and will end it.
    pub fn is_host(&self) -> bool {
        self.stage == Stage::Host
    }

    /// Rolls back to the state before anything was sent.
    pub async fn start_over(&mut self) -> Result<()> {
        self.flight.clear();
        let rolled_back = self.client.batch_execute("rollback").await;
        rolled_back.map_err(|error| classify(&error, Fate::Open))?;
        self.stage = Stage::Fresh;
        self.last = self.last_at_first;
        self.ahead.clear();
        self.partitions_locked = 0;
        self.locked_ahead.clear();
        self.paths_ahead = None;
        self.waiters_ahead = None;
        self.found_ahead.clear();
        self.totals_ahead = None;
        self.held_ahead = None;
        Ok(())
    }

    /// Rolls back in any state; returns `true` if the connection can be used again.
    pub async fn roll_back(&mut self) -> bool {
        self.flight.clear();
        match self.stage {
            Stage::Fresh | Stage::Host => true,
            Stage::Open | Stage::Committing => self.client.batch_execute("rollback").await.is_ok(),
        }
    }

    /// Waits for the results of all sent statements, in order.
    pub async fn land(&mut self) -> Result<()> {
        while let Some((looked_at, sent)) = self.flight.pop_front() {
            let rows = sent.answer().await.map_err(|error| self.failure(&error))?;
            self.ahead.extend(looked_at.map(|queue| (queue, rows)));
        }
        Ok(())
    }

    fn send(&mut self, sql: &'static str, params: Vec<Param>) -> Sent<'c> {
        if self.stage == Stage::Fresh {
            self.stage = Stage::Open;
            let begin = self.send_simple(self.begin);
            self.is_dead = matches!(begin, Sent::Answered(Err(_)));
            self.flight.push_back((None, begin));
        }
        let client = self.client;
        let prepared = self
            .prepared
            .and_then(|prepared| prepared.find(sql, &params));
        sent(async move {
            let rows = prepared::send(client, prepared, sql, params).await?;
            rows.try_collect().await
        })
    }

    fn send_commit(&mut self) -> Sent<'c> {
        self.stage = Stage::Committing;
        self.send_simple(COMMIT)
    }

    fn send_simple(&self, sql: &'c str) -> Sent<'c> {
        let client = self.client;
        sent(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
    }

    fn failure(&self, error: &DriverError) -> Error {
        let fate = match self.may_have_committed() {
            true => Fate::Committing,
            false => Fate::Open,
        };
        classify(error, fate)
    }

    /// The error if the server has not responded in time.
    pub fn overdue(&self, deadline: Duration) -> Error {
        match self.may_have_committed() {
            true => Error::Unknown(format!(
                "no answer to a COMMIT within {deadline:?}: the server or the network hangs"
            )),
            false => overdue(deadline),
        }
    }

    fn may_have_committed(&self) -> bool {
        self.stage == Stage::Committing && !self.is_dead
    }
}

/// Sends a statement by polling its future once: the driver sends on the first poll, and then only waits.
fn sent<'c>(answer: impl Future<Output = Answered> + Send + 'c) -> Sent<'c> {
    let mut answer: Pin<Box<dyn Future<Output = Answered> + Send + 'c>> = Box::pin(answer);
    match answer
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(answered) => Sent::Answered(answered),
        Poll::Pending => Sent::Waiting(answer),
    }
}

/// The last statement of these operations, if it can be determined.
fn last_of(ops: &[Op]) -> Option<Last> {
    let plain = |start: &Start| {
        start.key.is_none() && start.unique_key.is_none() && start.partition_key.is_none()
    };
    match ops {
        // More statements follow a leased claim, for its lease.
        _ if ops
            .iter()
            .any(|op| matches!(op, Op::Claim(request) if request.lease.is_some())) =>
        {
            None
        }
        [.., Op::Claim(_)] => {
            let claims = ops.iter().filter(|op| matches!(op, Op::Claim(_))).count();
            claims.checked_sub(1).map(Last::Claim)
        }
        [Op::Start(starts)] if starts.iter().all(plain) => Some(Last::Insert),
        [Op::Renew { .. }] => Some(Last::Renewal),
        _ => None,
    }
}

/// The queues that a commit will read: those of a worker that asks to keep a claim.
fn asks_for_waiting(op: &Op) -> &[(Name, Vec<Lane>)] {
    match op {
        Op::Commit { commits, serves } if commits.iter().any(|commit| commit.keep) => serves,
        _ => &[],
    }
}
