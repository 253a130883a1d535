//! A transaction in flight: statements are sent without waiting for the answers of those before them.
//!
//! A write is encoded, sent, and its answer left for later; a read waits for its own answer and so for all before it.
//! BEGIN travels with the first statement and COMMIT with the last, so that a batch which loads, writes and commits
//! takes two round trips, whatever it writes. Every answer is looked at: COMMIT itself answers that all is well also
//! when a statement before it failed and the server has rolled back.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_core::model::{CommandId, Epoch, InstanceId, Key, Lane, Name, Start};
use abide_kernel::{Error, EventPaths, Found, Op, Result, TypeTotal};
use futures_util::TryStreamExt;
use tokio_postgres::{Client, Error as DriverError, Row, Statement};

use crate::begin::{Begin, COMMIT};
use crate::claim;
use crate::error::{Fate, classify};
use crate::lineage::Lineage;
use crate::locks::Held;
use crate::param::Param;
use crate::pool::{Prepared, overdue};
use crate::waiters::{self, Probe};

/// What the driver answers to a statement.
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

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent yet.
    Fresh,
    /// BEGIN was sent.
    Open,
    /// It is the host's: who began it will end it.
    Host,
    /// COMMIT was sent.
    Committing,
}

/// A statement after which nothing can follow but COMMIT, which is then sent along with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// A claim, when that many have gone before it. What it says of parents and children is read after the commit.
    Claim(usize),
    /// The first insert, of rows that nothing can be in the way of.
    Insert,
    /// The renewal of a lease.
    Renewal,
}

/// A transaction in flight.
pub(crate) struct Transaction<'c> {
    client: &'c Client,
    prepared: &'c [(&'static str, Statement)],
    /// What it has locked.
    pub(crate) held: Held,
    /// The text that begins it.
    begin: &'c str,
    stage: Stage,
    /// The last epoch of the generations of the database before this one.
    pub(crate) epoch: Epoch,
    /// Statements whose answers were not looked at yet, in the order in which they will come: an answer that nobody
    /// takes holds up those behind it. A look into a queue that was sent ahead has the queue's name on it.
    flight: VecDeque<(Option<Name>, Sent<'c>)>,
    /// What those looks have shown.
    ahead: VecDeque<(Name, Vec<Row>)>,
    /// What the last statement of all will be, if that is known, now and when it began.
    last: Option<Last>,
    last_at_first: Option<Last>,
    /// Whether the connection was gone before anything was sent.
    is_dead: bool,
    /// How many partitions were locked one by one.
    pub(crate) partitions_locked: usize,
    /// Whether messages will be delivered: whoever looks for their targets takes numbers for their records along.
    pub(crate) delivers: bool,
    /// What was locked when it was found, by id, until something is locked.
    pub(crate) locked_ahead: Vec<abide_core::model::Row>,
    /// Numbers for records that nobody has used yet, rising.
    pub(crate) numbers: VecDeque<CommandId>,
    /// The types of which events will be published, and those for which waiters will be opened: whoever asks for
    /// numbers, or locks rows, takes along what is asked next.
    pub(crate) published: BTreeSet<Name>,
    pub(crate) awaited: BTreeSet<Name>,
    /// Under which paths waiters of the first types stand, and on which waits look back, until any are opened, closed or
    /// added.
    pub(crate) paths_ahead: Option<EventPaths>,
    /// What stands at some places of the index, until any are opened or closed.
    pub(crate) waiters_ahead: Option<(BTreeSet<Probe>, Vec<Row>)>,
    /// The keys and partitions of those who were found waiting, which never change.
    pub(crate) found_ahead: HashMap<InstanceId, Found>,
    /// What there is of the other types, until waiters are opened or closed.
    pub(crate) totals_ahead: Option<BTreeMap<Name, TypeTotal>>,
    /// What was held for some keys when rows with these were inserted, until the next record is written.
    pub(crate) held_ahead: Option<(BTreeSet<Key>, Vec<Row>)>,
}

impl<'c> Transaction<'c> {
    /// A transaction of our own, which will run these operations.
    pub fn own(
        client: &'c Client,
        prepared: &'c Prepared,
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
        // Of the first operation only: those after it must see what it has done.
        for (queue, lanes) in ops.first().map_or(&[][..], asks_for_waiting) {
            let looked = txn.send(claim::WAITING, claim::waiting_params(queue, lanes));
            txn.flight.push_back((Some(queue.clone()), looked));
        }
        txn
    }

    /// The host's transaction, which will run these operations and which the host will commit.
    pub fn host(client: &'c Client, ops: &[Op]) -> Self {
        Self::new(client, &[], Stage::Host, ops)
    }

    fn new(
        client: &'c Client,
        prepared: &'c [(&'static str, Statement)],
        stage: Stage,
        ops: &[Op],
    ) -> Self {
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

    /// Sends a statement whose answer holds no rows, and goes on.
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

    /// Sends a statement and waits for its rows; they see all that was written before.
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

    /// Sends a statement that may be the last and waits for its rows. When it is, COMMIT is sent along with it.
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

    /// What was seen of a queue when the transaction began, once.
    pub async fn read_ahead(&mut self, queue: &Name) -> Result<Option<Vec<Row>>> {
        self.land().await?;
        let seen = self.ahead.pop_front();
        Ok(seen
            .filter(|(looked_at, _)| looked_at == queue)
            .map(|(_, rows)| rows))
    }

    /// Commits, and looks at all that was not looked at yet. When this answers `Ok`, everything is durable.
    pub async fn commit(&mut self) -> Result<()> {
        if self.stage == Stage::Open {
            let commit = self.send_commit();
            self.flight.push_back((None, commit));
        }
        self.land().await
    }

    /// Whether the host began it and will end it.
    pub fn is_host(&self) -> bool {
        self.stage == Stage::Host
    }

    /// Rolls back and is as it was before anything was sent.
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

    /// Rolls back, whatever state it is in; whether the connection can be used again.
    pub async fn roll_back(&mut self) -> bool {
        self.flight.clear();
        match self.stage {
            Stage::Fresh | Stage::Host => true,
            Stage::Open | Stage::Committing => self.client.batch_execute("rollback").await.is_ok(),
        }
    }

    /// Waits for the answers of all that was sent, in the order in which they come.
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
        let prepared = self.prepared.iter().find(|(text, _)| *text == sql);
        sent(async move {
            let rows = match prepared {
                Some((_, statement)) => {
                    let params = params.into_iter().map(|param| param.typed().0);
                    client.query_raw(statement, params).await?
                }
                None => {
                    client
                        .query_typed_raw(sql, params.into_iter().map(Param::typed))
                        .await?
                }
            };
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

    /// What its caller is told when the server has not answered in time.
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

/// Makes a statement's future send it: the driver does that when it is polled for the first time, and then only waits.
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

/// What the last statement of these operations will be, where that can be told.
fn last_of(ops: &[Op]) -> Option<Last> {
    let plain = |start: &Start| {
        start.key.is_none() && start.unique_key.is_none() && start.partition_key.is_none()
    };
    match ops {
        // A leased claim is followed by what else its lease asks for.
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

/// The queues that committing will look into: those of a worker that would like to keep a claim.
fn asks_for_waiting(op: &Op) -> &[(Name, Vec<Lane>)] {
    match op {
        Op::Commit { commits, serves } if commits.iter().any(|commit| commit.keep) => serves,
        _ => &[],
    }
}
