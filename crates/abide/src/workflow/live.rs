//! A workflow's running code and its state. Other files (`inputs`, `replay`) deliver its inputs.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use abide_core::model::{Blocked, Command, InstanceId, Json, Operation, OperationKind};
use abide_kernel::OwnTransaction;
use futures_util::future::BoxFuture;

use super::journal::{Fresh, Handling, Journal, Open, StepState, WaitsFor};
use super::{handling, poll_runtime};
use crate::BoxError;
use crate::machine::{Fault, FaultKind};

/// The number of times that branches of the code may wake each other before this is considered an endless loop.
const ROUNDS: u32 = 100_000;

/// A workflow's running code.
pub(super) struct Live {
    pub journal: Arc<Journal>,
    code: Option<BoxFuture<'static, Result<Json, BoxError>>>,
    /// The updates that its `async` handlers are working on, by the number of their operation.
    pub handlers: BTreeMap<u32, Handling>,
    /// The return value of the code, if it returned at the end of its replay.
    pub returned: Option<Result<Json, Fault>>,
    /// Known commands that the code could not use yet.
    pub pending: Vec<Command>,
    /// The number of ended children that had been counted when it was last claimed.
    pub children_ended: u64,
    /// `true` if other children may have ended before that, and they were not loaded yet.
    pub check_children: bool,
}

/// The changes that are not committed yet, at one time.
pub(super) struct Mark {
    operations: usize,
    takes: usize,
    updates: usize,
    children: usize,
    /// The state that is shown to readers, if it changes.
    state: Option<Json>,
}

/// The state of the code when it can do no more without input.
pub(super) enum Stand {
    /// It waits.
    Waits,
    /// It has returned.
    Returned(Result<Json, Fault>),
    /// It cannot continue.
    Blocked(Blocked),
}

impl Live {
    pub fn new(journal: Arc<Journal>, code: BoxFuture<'static, Result<Json, BoxError>>) -> Self {
        Self {
            journal,
            // The replay would use up a budget, and wake the code from outside.
            code: Some(Box::pin(tokio::task::unconstrained(code))),
            handlers: BTreeMap::new(),
            returned: None,
            pending: Vec::new(),
            children_ended: 0,
            check_children: false,
        }
    }

    /// Polls the code until it waits for input, or has returned.
    pub fn poll(&mut self, runner: &Waker) -> Stand {
        if self.journal.bell.was_rung_from_outside() {
            // Before the code continues because of that.
            return self.waits();
        }
        self.journal.pages().runtime = tokio::runtime::Handle::try_current().ok();
        self.journal.bell.note_poller(runner);
        {
            // It is not known which of the running steps was woken.
            let _inside = self.journal.bell.enter();
            self.journal.step_bell.reset();
            self.journal.pages().wake_steps();
        }
        let bell = Waker::from(self.journal.bell.clone());
        for _ in 0..ROUNDS {
            let Some(code) = self.code.as_mut() else {
                return self.blocked_or(Stand::Waits);
            };
            let (journal, handlers) = (&self.journal, &mut self.handlers);
            let ((handled, polled), spawned) = poll_runtime::within(|| {
                let _inside = journal.bell.enter();
                // Handlers first, always in the same order, because it determines the numbers of the operations.
                let handled = handling::poll_all(handlers, &bell);
                let polled = catch_unwind(AssertUnwindSafe(|| {
                    code.as_mut().poll(&mut Context::from_waker(&bell))
                }));
                (handled, polled)
            });
            let returned = match polled {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(returned)) => Some(returned.map_err(Fault::error)),
                Err(panic) => Some(Err(Fault::panic(&*panic))),
            };
            let missed = match &returned {
                Some(Err(fault)) if fault.kind() == FaultKind::Panic => {
                    poll_runtime::is_missed(&fault.to_string())
                }
                _ => handled.iter().any(|one| one.missed),
            };
            if spawned || missed {
                self.code = None;
                if spawned {
                    self.journal.pages().misused(
                        "spawns a task".into(),
                        "do several things at once with `wf.all`, and put everything else into `wf.step`",
                    );
                }
                self.awaits_what_is_not_durable();
                return self.blocked_or(Stand::Waits);
            }
            handled.into_iter().for_each(|one| self.answer(one));
            if let Some(returned) = returned {
                self.code = None;
                return self.blocked_or(Stand::Returned(returned));
            }
            if !self.journal.bell.take_from_within() {
                return self.waits();
            }
        }
        let mut pages = self.journal.pages();
        pages.misused(
            "wakes itself again and again".into(),
            "let one branch wait for another with `wf.condition`",
        );
        drop(pages);
        self.blocked_or(Stand::Waits)
    }

    /// Returns the state of waiting code. It is blocked if it waits for something that is not durable.
    pub fn waits(&self) -> Stand {
        let durable = |open: &Open| !matches!(open.waits_for, WaitsFor::Branches);
        let waits = self.journal.pages().open.values().any(durable);
        if self.journal.bell.was_rung_from_outside() || !waits {
            self.awaits_what_is_not_durable();
        }
        self.blocked_or(Stand::Waits)
    }

    fn awaits_what_is_not_durable(&self) {
        self.journal.pages().misused(
            "awaits something that is not a durable operation (a timer, a channel, a task or a request of its own)".into(),
            "await `wf.sleep`, `wf.signal` and the like, and put everything else into `wf.step`",
        );
    }

    /// `true` if something that is not a durable operation may be about to wake the code, because it holds the code's
    /// waker.
    pub fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.journal.bell) > 1 + self.journal.pages().wakers()
    }

    pub(super) fn blocked_or(&self, stand: Stand) -> Stand {
        match self.journal.pages().trouble.clone() {
            Some(blocked) => Stand::Blocked(blocked),
            None => stand,
        }
    }

    /// `true` if a step must be started.
    pub fn wants_steps(&self) -> bool {
        self.has_step(StepState::Wanted)
    }

    /// `true` if the code of a step runs.
    pub fn runs_steps(&self) -> bool {
        self.has_step(StepState::Running)
    }

    fn has_step(&self, wanted: StepState) -> bool {
        let pages = self.journal.pages();
        let mut open = pages.open.values().filter(|open| open.brought.is_none());
        open.any(|open| matches!(open.waits_for, WaitsFor::Step { state, .. } if state == wanted))
    }

    /// Starts the steps that must be started.
    pub fn begin_steps(&mut self) {
        let mut pages = self.journal.pages();
        for open in pages.open.values_mut() {
            if let WaitsFor::Step { state, attempts } = &mut open.waits_for
                && *state == StepState::Wanted
            {
                (*state, *attempts) = (StepState::Running, *attempts + 1);
            }
        }
    }

    /// `true` if there are changes that must be committed before anything that depends on them is done (rule 1.1).
    pub fn must_commit(&self) -> bool {
        let pages = self.journal.pages();
        let Fresh {
            operations,
            takes,
            updates,
            children,
            state: _,
        } = &pages.fresh;
        let matters = |operation: &Operation| match operation {
            Operation::Opened(opened) => !matches!(
                opened.signature.operation_kind,
                OperationKind::Step | OperationKind::All | OperationKind::Select
            ),
            _ => true,
        };
        operations.iter().any(matters)
            || !takes.is_empty()
            || !updates.is_empty()
            || !children.is_empty()
    }

    /// The changes since the last commit. Returns `None` if the code cannot continue from here.
    pub fn mark(&self) -> Option<Mark> {
        let pages = self.journal.pages();
        let fresh = &pages.fresh;
        pages.trouble.is_none().then(|| Mark {
            operations: fresh.operations.len(),
            takes: fresh.takes.len(),
            updates: fresh.updates.len(),
            children: fresh.children.len(),
            state: fresh.state.clone(),
        })
    }

    /// Drops the changes after `mark`. `true` if the remaining changes must be committed.
    pub fn rewind(&mut self, mark: &Mark) -> bool {
        {
            let fresh = &mut self.journal.pages().fresh;
            if fresh.operations.len() < mark.operations || fresh.takes.len() < mark.takes {
                return false;
            }
            fresh.operations.truncate(mark.operations);
            fresh.takes.truncate(mark.takes);
            fresh.updates.truncate(mark.updates);
            fresh.children.truncate(mark.children);
            // A later state would show readers, and the next turn, what the history does not have.
            fresh.state = mark.state.clone();
        }
        self.must_commit()
    }

    /// `true` if a step has its own transaction open, or waits for one. Nothing can be committed beside it: on SQLite
    /// it blocks all other writers, and it continues only when the code is polled.
    pub fn is_writing(&self) -> bool {
        self.journal.writing.available_permits() == 0 && self.journal.pages().within_own.is_none()
    }

    /// Takes the transaction in which the changes must be committed, if a step wrote its own rows (rule 17.2).
    pub fn take_own(&mut self) -> Option<Box<dyn OwnTransaction>> {
        self.journal.pages().within_own.take()
    }

    /// `true` if the code can continue.
    pub fn is_well(&self) -> bool {
        self.journal.pages().trouble.is_none()
    }

    /// Takes the changes since the last commit.
    pub fn take_fresh(&mut self) -> Fresh {
        let mut pages = self.journal.pages();
        pages.events += pages.fresh.operations.len();
        std::mem::take(&mut pages.fresh)
    }

    /// The id of the instance.
    pub fn id(&self) -> InstanceId {
        self.journal.about.id
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut pages = self.journal.pages();
        // Operations that the code drops now are dropped because the code itself is.
        pages.over = true;
        // Handlers may hold the workflow, which holds them.
        let handlers = (
            std::mem::take(&mut pages.updates),
            std::mem::take(&mut pages.queries),
        );
        // Outside the lock, because dropping them runs user code.
        drop(pages);
        drop(handlers);
    }
}

#[cfg(test)]
mod tests {
    use abide_core::model::Json;
    use serde_json::{Value, json};

    use crate::{Abide, Flow, Signal, Workflow};

    #[tokio::test]
    async fn a_state_of_the_poll_that_panicked_is_not_committed_with_what_was_before_it() {
        // rule 12.3: one commit has all of a turn. The bug: the code took two signals in one turn, and panicked on the
        // second. The first was committed, with the state that the code had shown for the second.
        const GO: Signal<u32> = Signal::new("go");
        const SHOWS: Flow<Value, u32> = Flow::new("shows");
        let abide = Abide::open("memory:").await.unwrap();
        let run = abide.start(SHOWS, json!("input")).await.unwrap();
        for number in [1, 2] {
            abide.signal(run.id(), GO, &number).await.unwrap();
        }
        let code = |wf: Workflow, _: Value| async move {
            loop {
                let number = wf.signal(GO).await?;
                wf.show(Json::of(&number)?);
                assert!(number < 2, "it cannot go on");
                if number == 0 {
                    return Ok(number);
                }
            }
        };
        let engine = abide.engine().workflow(SHOWS, code).start().await.unwrap();
        let view = loop {
            let view = abide.describe(run.id()).await.unwrap().unwrap();
            if view.liveness.name().contains("blocked") {
                break view;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        let inbox = view.instance.inbox;
        assert_eq!((view.instance.state.as_str(), inbox.signals), ("1", 1));
        engine.shutdown().await;
    }
}
