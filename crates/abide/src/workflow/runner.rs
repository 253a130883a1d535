//! Runs workflows for the engine: a turn at a time, each committed as a whole.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use abide_core::model::{
    Blocked, Brood, Child, Command, Contract, Declared, Ending, Entry, Json, Limits, OperationKind,
    Outcome, Park, Refusal, Then, Unended, WorkflowTurn,
};
use abide_kernel::{Clock, Store};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cache::Cache;
use super::child::ChildEnd;
use super::flow::{Flow, Program, Typed, WorkflowCode};
use super::journal::{About, Fresh, Journal, WaitsFor};
use super::live::{Live, Stand};
use super::recorded::Recorded;
use super::{Continuation, Workflow};
use crate::engine::{Ran, Runner, Settings, Task};
use crate::machine::{Definition, Fault};

/// The most messages that are read from an inbox in the middle of a turn; with more, the store picks those that are
/// waited for.
const READ: u32 = 64;
/// How often to look for what has come while steps run, when nobody tells.
const LOOK: Duration = Duration::from_secs(1);
/// How long to wait before a database that cannot be reached is read again: at first, and at most.
const BACKOFF_FIRST: Duration = Duration::from_millis(20);
const BACKOFF_MAX: Duration = Duration::from_secs(2);

pub(crate) struct WorkflowRunner {
    declared: Result<(Declared, Option<Contract>), Refusal>,
    program: Arc<dyn Program>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    cache: Cache,
}

impl WorkflowRunner {
    pub fn new<I, O>(
        flow: Flow<I, O>,
        code: impl WorkflowCode<I, O>,
        store: Arc<dyn Store>,
        limits: Limits,
    ) -> Self
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let declared = flow.declared().and_then(|declared| {
            let contract = flow
                .agreement()?
                .map(|agreement| agreement.contract.clone());
            Ok((declared, contract))
        });
        Self {
            declared,
            program: Arc::new(Typed::new(code)),
            clock: store.clock(),
            store,
            limits: Arc::new(limits),
            cache: Cache::new(0),
        }
    }

    /// One turn of the code, until it waits for the world, or must be committed, or is over.
    async fn turn(&self, task: &Task) -> Outcome {
        let mut live = match self.cache.take(task.id, task.step_seq) {
            Some(live) => live,
            None => match self.revive(task).await {
                Ok(live) => live,
                Err(blocked) => return block(blocked),
            },
        };
        let look_at_children = !task.is_kept() && misses_children(&live, task.children_pending);
        if !task.is_kept() {
            live.children_seen = task.children_pending;
        }
        let mut turn = Turn {
            runner: self,
            task,
            mail: task.awaited.iter().chain(&task.updates).cloned().collect(),
            unread: 0,
            timers_first: task.timed_out,
            look_at_children,
        };
        turn.mail.sort_by_key(|message| message.sequence);
        let known = u32::try_from(turn.mail.len()).unwrap_or(u32::MAX);
        turn.unread = (task.inbox.signals + task.inbox.updates).saturating_sub(known);
        match turn.take(&mut live).await {
            Ok(then) => {
                let goes_on = matches!(then, Then::GoOn { .. } | Then::Park(_));
                if matches!(then, Then::GoOn { .. }) {
                    let born = live
                        .journal
                        .pages()
                        .fresh
                        .children
                        .iter()
                        .map(|brood| brood.starts.len())
                        .sum::<usize>();
                    live.children_seen += u32::try_from(born).unwrap_or(u32::MAX);
                }
                let outcome = commit(live.take_fresh(), then);
                if goes_on {
                    self.cache.keep(live, task.step_seq.saturating_add(1));
                }
                outcome
            }
            Err(blocked) => block(blocked),
        }
    }

    /// The code, brought to where its history ends.
    async fn revive(&self, task: &Task) -> Result<Live, Blocked> {
        let history = self.history(task).await?;
        let mut live = begin(
            &*self.program,
            About {
                id: task.id,
                key: task.key.clone(),
                clock: self.clock.clone(),
                result_bytes: self.limits.result_bytes,
                long_history: u32::try_from(self.limits.history_events / 2).unwrap_or(u32::MAX),
            },
            &task.state,
            history,
        )?;
        // What the code returns is seen when it is polled: nothing but its own end can come of that.
        match live.replay() {
            Stand::Blocked(blocked) => Err(blocked),
            Stand::Returned(returned) => {
                live.returned = Some(returned);
                Ok(live)
            }
            Stand::Waits => Ok(live),
        }
    }

    /// The run's history, as long as the database takes to tell it.
    async fn history(&self, task: &Task) -> Result<Vec<Entry>, Blocked> {
        const ROWS: usize = 1_000;
        let mut entries: Vec<Entry> = Vec::new();
        if task.step_seq == 1 {
            // No turn was committed yet.
            return Ok(entries);
        }
        loop {
            // Event 1 is told by the row.
            let after = entries.last().map_or(1, |entry| entry.seq);
            let rows = self
                .read(|| self.store.history(task.id, after, ROWS))
                .await?;
            let full = rows.len() >= ROWS;
            for row in &rows {
                let unpacked = row.unpack().map_err(|error| unreadable(&error))?;
                entries.extend(unpacked);
            }
            if !full {
                return Ok(entries);
            }
        }
    }

    /// Reads from the store, through times in which it cannot be reached.
    async fn read<'s, T>(
        &self,
        read: impl Fn() -> BoxFuture<'s, abide_kernel::Result<T>>,
    ) -> Result<T, Blocked> {
        let mut backoff = BACKOFF_FIRST;
        loop {
            match read().await {
                Ok(read) => return Ok(read),
                Err(error) if error.is_passing() => {
                    tracing::warn!(%error, "a workflow waits for the database");
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
                Err(error) => return Err(unreadable(&error)),
            }
        }
    }
}

/// A workflow's code, at its beginning, with what its history has to tell it.
pub(super) fn begin(
    program: &dyn Program,
    about: About,
    input: &Json,
    history: impl IntoIterator<Item = Entry>,
) -> Result<Live, Blocked> {
    let journal = Arc::new(Journal::new(about, Recorded::of(history)));
    let workflow = Workflow {
        journal: journal.clone(),
    };
    let made = {
        let _inside = journal.bell.enter();
        let begin = || program.begin(workflow, input);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin))
            .unwrap_or_else(|panic| Err(Fault::panic(&*panic)))
    };
    let code = made.map_err(|fault| Blocked {
        operation: 0,
        recorded: "its input".into(),
        asked: format!("another: {fault}"),
        cure: "deploy code that takes it; the run goes on when a worker with such code starts, or when it is repaired".into(),
    })?;
    Ok(Live::new(journal, code))
}

fn unreadable(error: &dyn std::fmt::Display) -> Blocked {
    Blocked {
        operation: 0,
        recorded: "something that cannot be read".into(),
        asked: format!("what can ({error})"),
        cure: "put the database right, and repair the run".into(),
    }
}

fn commit(fresh: Fresh, then: Then) -> Outcome {
    let Fresh {
        operations,
        takes,
        updates,
        children,
    } = fresh;
    Outcome::Workflow(Box::new(WorkflowTurn {
        operations,
        takes,
        updates,
        children,
        then,
    }))
}

/// What cannot go on is parked as it was before this turn: nothing of the turn is committed.
fn block(blocked: Blocked) -> Outcome {
    tracing::warn!(%blocked, "a workflow cannot go on");
    commit(Fresh::default(), Then::Block(blocked))
}

/// One turn under way.
struct Turn<'t> {
    runner: &'t WorkflowRunner,
    task: &'t Task,
    /// Messages that are known and not taken, in order.
    mail: Vec<Command>,
    /// How many others are in the inbox.
    unread: u32,
    /// Whether the wait was ended by its deadline: what came after that comes after it (rule 7.5).
    timers_first: bool,
    /// Whether children may have ended that the code has not been told of.
    look_at_children: bool,
}

impl Turn<'_> {
    /// Runs the code as far as it goes; what follows then.
    async fn take(&mut self, live: &mut Live) -> Result<Then, Blocked> {
        loop {
            let stand = match live.returned.take() {
                Some(returned) => Stand::Returned(returned),
                None => poll_fn(|cx| Poll::Ready(live.poll(cx.waker()))).await,
            };
            match stand {
                Stand::Waits => {}
                Stand::Blocked(blocked) => return Err(blocked),
                Stand::Returned(returned) => return Ok(end(live, returned)),
            }
            if live.bring_own() || self.bring(live).await? {
                continue;
            }
            if live.wants_steps() && !live.must_commit() {
                live.begin_steps();
                continue;
            }
            let running = live.runs_steps();
            if live.wants_steps() || running && live.must_commit() {
                return Ok(Then::GoOn { running });
            }
            if !running {
                return Ok(Then::Park(self.park(live)));
            }
            self.wait(live).await;
        }
    }

    /// Brings the code one thing that has come to it: a message, a child's end, the time. Whether there was one.
    async fn bring(&mut self, live: &mut Live) -> Result<bool, Blocked> {
        let now = self.runner.clock.now();
        if self.timers_first && live.fire(now) {
            return Ok(true);
        }
        self.timers_first = false;
        self.mail.append(&mut live.journal.pages().returned);
        self.mail.sort_by_key(|message| message.sequence);
        if let Some(at) = self.mail.iter().position(|message| live.offer(message)) {
            self.mail.remove(at);
            return Ok(true);
        }
        if live.fire(now) {
            return Ok(true);
        }
        if (1..=READ).contains(&self.unread) && waits_for_mail(live) {
            return self.read_mail(live).await;
        }
        if self.look_at_children {
            self.look_at_children = false;
            return self.join(live).await;
        }
        Ok(false)
    }

    /// Reads what is in the inbox. Whether there was something new.
    async fn read_mail(&mut self, live: &mut Live) -> Result<bool, Blocked> {
        self.unread = 0;
        let store = &self.runner.store;
        let pending = self.runner.read(|| store.inbox(self.task.id)).await?;
        let pages = live.journal.pages();
        let known = |message: &Command| {
            self.mail.iter().any(|known| known.id == message.id)
                || pages.fresh.takes.iter().any(|taken| taken.id == message.id)
                || pages
                    .fresh
                    .updates
                    .iter()
                    .any(|answered| answered.update_id == message.id)
        };
        let new: Vec<Command> = pending
            .into_iter()
            .filter(|message| !known(message))
            .collect();
        drop(pages);
        let found = !new.is_empty();
        self.mail.extend(new);
        Ok(found)
    }

    /// Looks at the children that operations wait for, and ends those that have waited for enough. Whether any has.
    async fn join(&mut self, live: &mut Live) -> Result<bool, Blocked> {
        let waiting: Vec<(u32, OperationKind, u32)> = {
            let pages = live.journal.pages();
            let unborn = |number: u32| {
                pages
                    .fresh
                    .children
                    .iter()
                    .any(|brood| brood.operation == number)
            };
            let open = pages
                .open
                .iter()
                .filter(|(number, open)| open.brought.is_none() && !unborn(**number));
            let joins = open.filter_map(|(number, open)| match open.waits_for {
                WaitsFor::Children { wanted, .. } => {
                    Some((*number, open.signature.operation_kind, wanted))
                }
                _ => None,
            });
            joins.collect()
        };
        let mut joined = false;
        for (number, kind, wanted) in waiting {
            let store = &self.runner.store;
            let barrier = Brood::barrier(number);
            let children = self
                .runner
                .read(|| store.children(self.task.id, barrier))
                .await?;
            let total = u32::try_from(children.len()).unwrap_or(u32::MAX);
            let ended: Vec<Child> = children
                .into_iter()
                .filter(|child| child.status.is_terminal())
                .collect();
            let count = u32::try_from(ended.len()).unwrap_or(u32::MAX);
            let left = wanted.min(total).saturating_sub(count);
            if left == 0 {
                live.join(number, joined_as(kind, ended));
                joined = true;
            } else if let Some(open) = live.journal.pages().open.get_mut(&number)
                && let WaitsFor::Children { unended, .. } = &mut open.waits_for
            {
                *unended = Some(left);
            }
        }
        Ok(joined)
    }

    /// Waits until something happens to the steps that run, or comes to the code.
    async fn wait(&mut self, live: &mut Live) {
        let until = live.next_due(None).map(|(due, _)| due);
        let clock = self.runner.clock.clone();
        let timer = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let others = waits_for_mail(live) || waits_for_children(live);
        let mut polled = false;
        // The steps have been polled with this task's waker already: the next wake is theirs.
        let woken = poll_fn(|cx| {
            live.journal.pages().runner = Some(cx.waker().clone());
            live.journal.bell.note_poller(cx.waker());
            if std::mem::replace(&mut polled, true) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        tokio::select! {
            () = woken => {}
            () = timer => {}
            () = self.task.mail.notified() => self.unread = self.unread.max(1),
            () = tokio::time::sleep(LOOK), if others => {
                (self.unread, self.look_at_children) = (self.unread.max(1), true);
            }
        }
    }

    /// What the code waits for, as the row can hold it.
    fn park(&self, live: &Live) -> Park {
        let pages = live.journal.pages();
        let unborn = |number: u32| {
            pages
                .fresh
                .children
                .iter()
                .any(|brood| brood.operation == number)
        };
        let mut park = Park::default();
        let mut needed: Option<u32> = None;
        for (number, open) in &pages.open {
            match &open.waits_for {
                WaitsFor::Branches => continue,
                WaitsFor::Signal => park.signals.extend(open.signature.name.clone()),
                WaitsFor::Condition { .. } => {
                    let keys = park.conditions.get_or_insert_default();
                    keys.extend(open.signature.key.clone());
                }
                WaitsFor::Children { wanted, unended } if !unborn(*number) => {
                    let left = unended.unwrap_or(*wanted);
                    needed = Some(needed.map_or(left, |needed| needed.min(left)));
                }
                WaitsFor::Children { .. } | WaitsFor::Time | WaitsFor::Step { .. } => {}
            }
            park.operation = *number;
        }
        drop(pages);
        park.signals.sort_unstable();
        park.signals.dedup();
        park.until = live.next_due(None).map(|(due, _)| due);
        park.children = needed.map(|needed| Unended {
            seen: live.children_seen,
            needed,
        });
        park
    }
}

fn waits_for_mail(live: &Live) -> bool {
    let pages = live.journal.pages();
    !pages.updates.is_empty()
        || pages.cancelled.is_none()
        || pages
            .open
            .values()
            .any(|open| matches!(open.waits_for, WaitsFor::Signal))
}

/// Whether operations wait for children of which some may have ended.
fn misses_children(live: &Live, pending: u32) -> bool {
    let pages = live.journal.pages();
    pages.open.values().any(|open| match open.waits_for {
        WaitsFor::Children { unended, .. } => unended.is_none() || pending != live.children_seen,
        _ => false,
    })
}

fn waits_for_children(live: &Live) -> bool {
    let pages = live.journal.pages();
    let mut open = pages.open.values();
    open.any(|open| matches!(open.waits_for, WaitsFor::Children { .. }))
}

/// What an operation that waited for children comes to.
fn joined_as(kind: OperationKind, ended: Vec<Child>) -> Ending {
    let mut ends = ended.into_iter().map(|child| ChildEnd {
        id: child.id,
        key: child.key,
        machine: child.machine,
        status: child.status,
        result: child.result,
        last_error: child.last_error,
    });
    let written = if kind == OperationKind::Child {
        match ends.next() {
            Some(end) => Json::of(&end),
            None => return Ending::Error("its key, or its unique key, is taken".into()),
        }
    } else {
        Json::of(&ends.collect::<Vec<_>>())
    };
    written.map_or_else(|error| Ending::Error(error.to_string()), Ending::Value)
}

/// What follows when the code has returned. One that was cancelled ends so, however its code returned.
fn end(live: &Live, returned: Result<Json, Fault>) -> Then {
    let cancelled = live.journal.pages().cancelled.clone();
    match (returned, cancelled) {
        (Err(fault), _) if fault.downcast_ref::<Continuation>().is_some() => {
            let state = fault
                .downcast_ref::<Continuation>()
                .map(|next| next.0.clone());
            Then::ContinueAsNew {
                state: state.unwrap_or_default(),
                version: None,
            }
        }
        (Ok(_), Some(reason)) => Then::Cancelled { reason },
        (Err(fault), Some(reason)) => {
            let is_it = |error: &super::OperationError| error.is_cancelled();
            let told = fault.downcast_ref().is_some_and(is_it);
            Then::Cancelled {
                reason: match told {
                    true => reason,
                    false => format!("{reason}; and its code failed: {fault}"),
                },
            }
        }
        (Ok(result), None) => Then::Done { result },
        (Err(fault), None) => Then::Stop {
            reason: fault.to_string(),
        },
    }
}

impl Runner for WorkflowRunner {
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal> {
        self.declared.clone()
    }

    fn for_engine(self: Arc<Self>, settings: &Settings) -> Arc<dyn Runner> {
        Arc::new(Self {
            declared: self.declared.clone(),
            program: self.program.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            limits: self.limits.clone(),
            cache: Cache::new(settings.workflows_kept),
        })
    }

    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move {
            Ran {
                outcome: self.turn(&task).await,
                error: None,
                within: None,
            }
        })
    }

    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        self.run(task)
    }

    fn refused(self: Arc<Self>, _: Arc<Task>, why: String) -> BoxFuture<'static, Ran> {
        let reason = format!("what the workflow came to cannot be stored: {why}");
        Box::pin(std::future::ready(Ran {
            outcome: commit(
                Fresh::default(),
                Then::Stop {
                    reason: reason.clone(),
                },
            ),
            error: Some(reason),
            within: None,
        }))
    }

    fn settled(&self, task: &Task, committed: bool) {
        self.cache.settle(task.id, task.step_seq, committed);
    }
}
