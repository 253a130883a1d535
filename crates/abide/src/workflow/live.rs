//! A workflow's code under way, and where it stands. What it waits for is brought to it elsewhere (`bring`, `again`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use abide_core::model::{Blocked, Command, InstanceId, Json, Operation, OperationKind};
use futures_util::future::BoxFuture;

use super::barren;
use super::journal::{Fresh, Journal, Open, StepState, WaitsFor};
use crate::BoxError;
use crate::machine::{Fault, FaultKind};

/// How often branches of the code may wake each other before they are taken to go round in circles.
const ROUNDS: u32 = 100_000;

/// A workflow's code under way.
pub(super) struct Live {
    pub journal: Arc<Journal>,
    code: Option<BoxFuture<'static, Result<Json, BoxError>>>,
    /// What the code returned at the end of its replay, when it did.
    pub returned: Option<Result<Json, Fault>>,
    /// Messages that are known and that the code had no use for yet.
    pub mail: Vec<Command>,
    /// How many ends of its children had been counted when it was last claimed.
    pub children_ended: u64,
    /// Whether others may have ended before that, and it was not looked which.
    pub look_at_children: bool,
}

/// Where the code stands when nothing more can be done without the world.
pub(super) enum Stand {
    /// It waits.
    Waits,
    /// It has returned.
    Returned(Result<Json, Fault>),
    /// It cannot go on.
    Blocked(Blocked),
}

impl Live {
    pub fn new(journal: Arc<Journal>, code: BoxFuture<'static, Result<Json, BoxError>>) -> Self {
        Self {
            journal,
            // A budget would be spent by the replay, and wake the code from outside.
            code: Some(Box::pin(tokio::task::unconstrained(code))),
            returned: None,
            mail: Vec::new(),
            children_ended: 0,
            look_at_children: false,
        }
    }

    /// Polls the code until it waits for the world, or has returned.
    pub fn poll(&mut self, runner: &Waker) -> Stand {
        if self.journal.bell.was_rung_from_outside() {
            // Before it goes on because of that.
            return self.waits();
        }
        self.journal.pages().runtime = tokio::runtime::Handle::try_current().ok();
        self.journal.bell.note_poller(runner);
        {
            // It is not known which of the steps that run was woken.
            let _inside = self.journal.bell.enter();
            self.journal.step_bell.reset();
            self.journal.pages().wake_steps();
        }
        let bell = Waker::from(self.journal.bell.clone());
        for _ in 0..ROUNDS {
            let Some(code) = self.code.as_mut() else {
                return self.blocked_or(Stand::Waits);
            };
            let (polled, spawned) = barren::within(|| {
                let _inside = self.journal.bell.enter();
                catch_unwind(AssertUnwindSafe(|| {
                    code.as_mut().poll(&mut Context::from_waker(&bell))
                }))
            });
            let returned = match polled {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(returned)) => Some(returned.map_err(Fault::error)),
                Err(panic) => Some(Err(Fault::panic(&*panic))),
            };
            let missed = match &returned {
                Some(Err(fault)) if fault.kind() == FaultKind::Panic => {
                    barren::is_missed(&fault.to_string())
                }
                _ => false,
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

    /// The code waits: for something that can come, or for something that nobody here can bring it.
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
            "awaits something that is no durable operation (a timer, a channel, a task or a request of its own)".into(),
            "await `wf.sleep`, `wf.signal` and the like, and put everything else into `wf.step`",
        );
    }

    /// Whether something that is no durable operation may be about to wake the code: it holds what wakes it.
    pub fn is_held_elsewhere(&self) -> bool {
        Arc::strong_count(&self.journal.bell) > 1 + self.journal.pages().wakers()
    }

    pub(super) fn blocked_or(&self, stand: Stand) -> Stand {
        match self.journal.pages().trouble.clone() {
            Some(blocked) => Stand::Blocked(blocked),
            None => stand,
        }
    }

    /// Whether a step is to be begun.
    pub fn wants_steps(&self) -> bool {
        self.has_step(StepState::Wanted)
    }

    /// Whether the code of a step runs.
    pub fn runs_steps(&self) -> bool {
        self.has_step(StepState::Running)
    }

    fn has_step(&self, wanted: StepState) -> bool {
        let pages = self.journal.pages();
        let mut open = pages.open.values().filter(|open| open.brought.is_none());
        open.any(|open| matches!(open.waits_for, WaitsFor::Step { state, .. } if state == wanted))
    }

    /// Lets the steps begin that are to be.
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

    /// Whether something has happened that must be committed before anything that follows from it is done (rule 1.1).
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

    /// How much has happened since the last commit; none when the code cannot go on from it.
    pub fn mark(&self) -> Option<[usize; 4]> {
        let pages = self.journal.pages();
        let fresh = &pages.fresh;
        pages.trouble.is_none().then_some([
            fresh.operations.len(),
            fresh.takes.len(),
            fresh.updates.len(),
            fresh.children.len(),
        ])
    }

    /// Forgets what has happened since. Whether there is something left that must be committed.
    pub fn rewind(&mut self, mark: [usize; 4]) -> bool {
        {
            let fresh = &mut self.journal.pages().fresh;
            let [operations, takes, updates, children] = mark;
            if fresh.operations.len() < operations || fresh.takes.len() < takes {
                return false;
            }
            fresh.operations.truncate(operations);
            fresh.takes.truncate(takes);
            fresh.updates.truncate(updates);
            fresh.children.truncate(children);
        }
        self.must_commit()
    }

    /// Whether the code can go on.
    pub fn is_well(&self) -> bool {
        self.journal.pages().trouble.is_none()
    }

    /// What has happened since the last commit.
    pub fn take_fresh(&mut self) -> Fresh {
        let mut pages = self.journal.pages();
        pages.events += pages.fresh.operations.len();
        std::mem::take(&mut pages.fresh)
    }

    /// The instance.
    pub fn id(&self) -> InstanceId {
        self.journal.about.id
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // What the code drops now, it drops because it is dropped itself.
        self.journal.pages().over = true;
    }
}
