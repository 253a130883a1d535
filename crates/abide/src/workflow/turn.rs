//! One turn of a workflow's code: delivers inputs to it, until it waits, must be committed, or ends.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use abide_core::model::{
    BarrierNumber, Blocked, Child, ChildStarts, Command, ConditionWait, Ending, Entry,
    HistoryEvent, Json, OperationKind, Park, Refusal, SignalWait, Then, Timestamp, Unended,
};

use super::Continuation;
use super::child::ChildEnd;
use super::journal::{Open, WaitsFor};
use super::live::{Live, Stand};
use super::runner::WorkflowRunner;
use crate::engine::Task;
use crate::machine::{Fault, FaultKind};

/// The maximum number of commands that are read from an inbox during a turn. If there are more, the store picks those
/// that are waited for.
const READ: u32 = 64;

/// A turn in progress.
pub(super) struct Turn<'t> {
    runner: &'t WorkflowRunner,
    task: &'t Task,
    /// The number of commands in the inbox that are not known yet.
    unread: u32,
    /// `true` if the inbox has not changed since it was last read, as far as this turn knows.
    is_read: bool,
    /// The deadline that ended the wait. Commands that arrived after it come after it (rule 7.5).
    timed_out: Option<Timestamp>,
    /// `true` if children may have ended that the code does not know of.
    check_children: bool,
    /// Operations whose children have ended, and their results.
    joined: VecDeque<(u32, Ending)>,
    /// The refusal of an earlier attempt to commit this turn.
    refused: Option<&'t Refusal>,
}

impl<'t> Turn<'t> {
    pub fn new(
        runner: &'t WorkflowRunner,
        task: &'t Task,
        live: &mut Live,
        refused: Option<&'t Refusal>,
    ) -> Self {
        let check_children = std::mem::take(&mut live.check_children)
            || !task.is_kept() && misses_children(live, task.children_ended);
        if !task.is_kept() {
            live.children_ended = task.children_ended;
            live.pending = {
                let pages = live.journal.pages();
                let claimed = task.awaited.iter().chain(&task.updates);
                let new = claimed.filter(|message| !pages.handles(message.id));
                new.cloned().collect()
            };
        }
        let known = live.pending.len() + live.journal.pages().handled.len();
        let known = u32::try_from(known).unwrap_or(u32::MAX);
        Self {
            runner,
            task,
            unread: (task.inbox.signals + task.inbox.updates).saturating_sub(known),
            is_read: false,
            timed_out: task
                .timed_out
                .then(|| live.next_due(None))
                .flatten()
                .map(|(due, _)| due),
            check_children,
            joined: VecDeque::new(),
            refused,
        }
    }

    /// Runs the code as far as possible. Returns what happens next.
    pub async fn take(&mut self, live: &mut Live) -> Result<Then, Blocked> {
        // The code was already polled. Polling it again without anything new might cause operations that no history
        // explains. But running steps must know which task waits for them.
        let mut polled = !live.runs_steps();
        let mut well = live.mark();
        loop {
            let stand = match live.returned.take() {
                Some(returned) => Stand::Returned(returned),
                None if std::mem::take(&mut polled) => live.waits(),
                None => poll_fn(|cx| Poll::Ready(live.poll(cx.waker()))).await,
            };
            match stand {
                Stand::Waits => {}
                // Progress that this code made before is kept. So is the result of a step, which does not run again for
                // this.
                Stand::Blocked(_) if well.as_ref().is_some_and(|mark| live.rewind(mark)) => {
                    return Ok(Then::GoOn { running: false });
                }
                Stand::Blocked(blocked) => return Err(blocked),
                // rule 12.4: a panic does not end a run. A cancelled run ends, however its code ends.
                Stand::Returned(Err(fault)) if panicked(live, &fault) => {
                    let blocked = live.journal.pages().panicked(&fault);
                    if well.as_ref().is_some_and(|mark| live.rewind(mark)) {
                        return Ok(Then::GoOn { running: false });
                    }
                    return Err(blocked);
                }
                Stand::Returned(returned) => {
                    let then = end(live, returned);
                    live.stop_handlers(matches!(then, Then::ContinueAsNew { .. }));
                    return Ok(then);
                }
            }
            well = live.mark();
            if live.bring_own() {
                well = live.mark();
                continue;
            }
            if self.bring(live).await? {
                continue;
            }
            if live.wants_steps() && !live.must_commit() {
                live.begin_steps();
                continue;
            }
            let running = live.runs_steps();
            if running && live.is_writing() {
                // rule 17.2: this is committed together with the rows of that step, or when that step has failed.
                self.wait(live).await;
                if self.task.cancelled.is_cancelled() {
                    return Ok(Then::GoOn { running: false });
                }
                continue;
            }
            if live.wants_steps() || running && live.must_commit() {
                return Ok(Then::GoOn { running });
            }
            if !running {
                if live.is_held_elsewhere() {
                    // For example, a task that has yielded is woken as soon as this one yields.
                    tokio::task::yield_now().await;
                    if live.journal.bell.was_rung_from_outside() {
                        continue;
                    }
                }
                if self.fail_what_was_refused(live) {
                    continue;
                }
                return Ok(Then::Park(self.park(live)));
            }
            self.wait(live).await;
            if self.task.cancelled.is_cancelled() {
                // By force: what would be committed now is discarded, and the steps with it.
                return Ok(Then::GoOn { running: false });
            }
        }
    }

    /// Delivers one input to the code: a command, the end of a child, or a timer. `true` if there was one.
    async fn bring(&mut self, live: &mut Live) -> Result<bool, Blocked> {
        let now = self.runner.clock.now();
        // Later deadlines are not committed yet: a signal may have arrived before them.
        if self.timed_out.is_some_and(|due| live.fire(due.min(now))) {
            return Ok(true);
        }
        self.timed_out = None;
        // rule 9.4: a signal that is not known yet may precede an update that is.
        if !self.is_read && self.unread > 0 && live.could_overtake() {
            self.is_read = true;
            self.read_inbox(live).await?;
        }
        if live.bring_commands() {
            return Ok(true);
        }
        // Commands that were accepted before a deadline come before it, so the inbox is read again when one has passed.
        let due = live.next_due(Some(now)).is_some();
        if !self.is_read && (due || (1..=READ).contains(&self.unread)) {
            self.is_read = true;
            if self.read_inbox(live).await? {
                return Ok(true);
            }
        }
        if due && live.fire(now) {
            return Ok(true);
        }
        if std::mem::take(&mut self.check_children) {
            self.load_children(live).await?;
        }
        // One at a time: the code is polled after each, as it will be in a replay.
        let joined = self.joined.pop_front();
        Ok(joined.is_some_and(|(number, ending)| {
            live.join(number, ending);
            true
        }))
    }

    /// Reads the inbox. `true` if it contained new commands.
    async fn read_inbox(&mut self, live: &mut Live) -> Result<bool, Blocked> {
        let store = &self.runner.store;
        let pending = self.runner.read(|| store.inbox(self.task.id)).await?;
        let pages = live.journal.pages();
        let known = |message: &Command| {
            live.pending.iter().any(|known| known.id == message.id)
                || pages.handles(message.id)
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
        live.pending.extend(new);
        // Commands that are accepted later send a notification, so the wake of a step is not a reason to read again.
        self.unread = 0;
        Ok(found)
    }

    /// Loads the children that operations wait for, and finds the operations for which enough of them have ended.
    async fn load_children(&mut self, live: &mut Live) -> Result<(), Blocked> {
        let waiting: Vec<(u32, OperationKind, u32)> = {
            let pages = live.journal.pages();
            let unborn = |number: u32| {
                pages
                    .fresh
                    .children
                    .iter()
                    .any(|spawn| spawn.operation == number)
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
        for (number, kind, wanted) in waiting {
            let store = &self.runner.store;
            let barrier = ChildStarts::barrier(number);
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
                let ending = match kind == OperationKind::Child && ended.is_empty() {
                    true => Ending::Error(self.why_missing(barrier).await?.into()),
                    false => joined_as(kind, ended),
                };
                self.joined.push_back((number, ending));
            } else if let Some(open) = live.journal.pages().open.get_mut(&number)
                && let WaitsFor::Children { unended, .. } = &mut open.waits_for
            {
                *unended = Some(left);
            }
        }
        Ok(())
    }

    /// Explains why a barrier that should have a child has none.
    async fn why_missing(&self, barrier: BarrierNumber) -> Result<&'static str, Blocked> {
        let was_started = |entry: &Entry| matches!(entry.what, HistoryEvent::ChildrenSpawned { barrier: of, count, .. } if of == barrier && count > 0);
        Ok(
            match self
                .runner
                .history(self.task)
                .await?
                .iter()
                .any(was_started)
            {
                true => "the child was started, and is gone: somebody has deleted it",
                false => "the child was not started: its key, or its unique key, is taken",
            },
        )
    }

    /// Waits until a running step changes, or an input arrives for the code.
    async fn wait(&mut self, live: &mut Live) {
        let until = live.next_due(None).map(|(due, _)| due);
        let clock = self.runner.clock.clone();
        let timer = async {
            match until {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let woken = poll_fn(|cx| {
            live.journal.bell.note_poller(cx.waker());
            match live.journal.bell.was_rung_from_outside() {
                true => Poll::Ready(()),
                false => live.journal.step_bell.poll_rung(cx),
            }
        });
        tokio::select! {
            () = woken => {}
            () = timer => {}
            () = self.task.cancelled.cancelled() => {}
            () = self.task.command_arrived.notified() => {
                (self.unread, self.check_children) = (1, true);
            }
        }
        self.is_read = false;
    }

    /// Fails a wait for events of a type that has too many waiters. `true` if there was one.
    fn fail_what_was_refused(&self, live: &mut Live) -> bool {
        let Some(refusal @ Refusal::TooManyWaiters { event_type, .. }) = self.refused else {
            return false;
        };
        let found = {
            let pages = live.journal.pages();
            let mut open = pages.open.iter();
            let is_it = |open: &Open| {
                open.brought.is_none()
                    && matches!(&open.waits_for, WaitsFor::Event(event) if event.event_type == *event_type)
            };
            open.find(|(_, open)| is_it(open))
                .map(|(number, _)| *number)
        };
        if let Some(number) = found {
            live.join(number, Ending::Error(refusal.to_string()));
        }
        found.is_some()
    }

    /// Returns what the code waits for, in the form that the row stores.
    fn park(&self, live: &mut Live) -> Park {
        let pages = live.journal.pages();
        let unborn = |number: u32| {
            pages
                .fresh
                .children
                .iter()
                .any(|spawn| spawn.operation == number)
        };
        let mut park = Park::default();
        let mut needed: Option<u32> = None;
        for (number, open) in &pages.open {
            match &open.waits_for {
                WaitsFor::Branches => continue,
                WaitsFor::Signal => {
                    let name = open.signature.name.clone();
                    park.signals.extend(name.map(|name| SignalWait {
                        operation: *number,
                        name,
                        deadline: open.deadline,
                    }));
                }
                WaitsFor::Event(event) => park.events.push((*number, event.clone())),
                WaitsFor::Condition { .. } => {
                    park.conditions.push(ConditionWait {
                        operation: *number,
                        key: open.signature.key.clone(),
                        deadline: open.deadline,
                    });
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
        park.until = live.next_due(None).map(|(due, _)| due);
        park.children = needed.map(|needed| Unended {
            seen: live.children_ended,
            needed,
        });
        park
    }
}

/// `true` if operations wait for children of which some may have ended.
fn misses_children(live: &Live, ended: u64) -> bool {
    let pages = live.journal.pages();
    pages.open.values().any(|open| match open.waits_for {
        WaitsFor::Children { unended, .. } => unended.is_none() || ended != live.children_ended,
        _ => false,
    })
}

/// The result of an operation that waited for children.
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
        Json::of(&ends.next())
    } else {
        Json::of(&ends.collect::<Vec<_>>())
    };
    written.map_or_else(|error| Ending::Error(error.to_string()), Ending::Value)
}

/// `true` if the code panicked, and was not cleaning up after a cancellation.
fn panicked(live: &Live, fault: &Fault) -> bool {
    fault.kind() == FaultKind::Panic && live.journal.pages().cancelled.is_none()
}

/// Returns what happens after the code has returned. A cancelled run ends as cancelled, whatever its code returned.
fn end(live: &Live, returned: Result<Json, Fault>) -> Then {
    let cancelled = live.journal.pages().cancelled.clone();
    if let (Err(fault), None) = (&returned, &cancelled)
        && let Some(next) = fault.downcast_ref::<Continuation>()
    {
        let Continuation { state, version } = next.clone();
        return Then::ContinueAsNew { state, version };
    }
    match (returned, cancelled) {
        (Ok(_), Some(reason)) => Then::Cancelled { reason },
        (Err(fault), Some(reason)) => {
            let is_it = |error: &super::OperationError| error.is_cancelled();
            let is_cancellation = fault.downcast_ref().is_some_and(is_it)
                || fault.downcast_ref::<Continuation>().is_some();
            Then::Cancelled {
                reason: match is_cancellation {
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
