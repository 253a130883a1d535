//! A workflow's code under way: polled, and brought what it waits for, one thing at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use abide_core::model::{
    Answered, Blocked, Command, CommandKind, Completed, Ending, InstanceId, Json, Operation,
    OperationKind, Taken, Timestamp, TriedAgain,
};
use abide_core::rules::inbox::reason_of;
use futures_util::future::BoxFuture;

use super::barren;
use super::journal::{Brought, Fresh, Handler, Journal, Ran, StepState, WaitsFor, Within};
use super::recorded::{came_to, named};
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
    /// How many of its children had not ended when it was last looked.
    pub children_seen: u32,
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
            children_seen: 0,
            look_at_children: false,
        }
    }

    /// Brings the code all that its history has, in the order in which it came the first time (rule 12.1).
    pub fn replay(&mut self) -> Stand {
        let mut stand = self.poll(Waker::noop());
        while let Stand::Waits = stand {
            let Some(completed) = self.journal.pages().recorded.brought.pop_front() else {
                return self.replayed();
            };
            if let Err(blocked) = self.bring_again(completed) {
                return Stand::Blocked(blocked);
            }
            stand = self.poll(Waker::noop());
        }
        let mut pages = self.journal.pages();
        if let (Stand::Returned(_), true) = (&stand, pages.is_replaying()) {
            let number = pages.count() + 1;
            let recorded = pages.recorded.name_of(number);
            let recorded = recorded.or_else(|| pages.recorded.brought.front().map(named));
            pages.differs(
                number,
                &recorded.unwrap_or_else(|| "more".into()),
                "nothing: it has returned",
            );
            if let Some(blocked) = pages.trouble.clone() {
                return Stand::Blocked(blocked);
            }
        }
        stand
    }

    /// The code waits at the end of its history: it must have asked for all that is recorded there. What replay needed
    /// to know is forgotten.
    fn replayed(&self) -> Stand {
        let mut pages = self.journal.pages();
        if pages.is_replaying() {
            let number = pages.count() + 1;
            let recorded = pages.recorded.name_of(number);
            let recorded = recorded.unwrap_or_else(|| "more".into());
            pages.differs(
                number,
                &recorded,
                "nothing yet: it waits for something else",
            );
        }
        pages.recorded.forget();
        drop(pages);
        self.blocked_or(Stand::Waits)
    }

    /// Brings the code one thing that its history has.
    fn bring_again(&mut self, completed: Completed) -> Result<(), Blocked> {
        let _inside = self.journal.bell.enter();
        match (completed.operation_kind, completed.operation) {
            (OperationKind::Update, _) => {
                let Ending::Value(_) = completed.outcome else {
                    return Ok(());
                };
                let arguments = completed.arguments.clone().unwrap_or_default();
                match self.handle(&completed, &arguments, usize::MAX) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => {
                        self.differs(&completed, &format!("an update that fails: {error}"))?
                    }
                    None => self.differs(&completed, "no such update")?,
                }
            }
            (OperationKind::Cancel, _) => {
                let reason = match completed.outcome {
                    Ending::Error(reason) => reason,
                    _ => String::new(),
                };
                self.cancel(&reason);
            }
            (kind, Some(number)) => {
                let mut pages = self.journal.pages();
                let waits = pages
                    .open
                    .get(&number)
                    .is_some_and(|open| open.signature.operation_kind == kind);
                if !waits {
                    drop(pages);
                    return self.differs(&completed, "something else first");
                }
                pages.bring(number, Brought::Ending(completed.outcome, None));
            }
            (_, None) => {}
        }
        self.journal.pages().wake_conditions();
        Ok(())
    }

    fn differs(&self, completed: &Completed, asked: &str) -> Result<(), Blocked> {
        let mut pages = self.journal.pages();
        let number = completed.operation.unwrap_or_else(|| pages.count());
        pages.differs(number, &format!("the end of {}", named(completed)), asked);
        pages.trouble.clone().map_or(Ok(()), Err)
    }

    /// Polls the code until it waits for the world, or has returned.
    pub fn poll(&mut self, runner: &Waker) -> Stand {
        if self.journal.bell.was_rung_from_outside() {
            // Before it goes on because of that.
            return self.waits();
        }
        {
            let mut pages = self.journal.pages();
            pages.runner = Some(runner.clone());
            pages.runtime = tokio::runtime::Handle::try_current().ok();
        }
        self.journal.bell.note_poller(runner);
        {
            // Whatever woke the runner may have been for any of the steps that run.
            let _inside = self.journal.bell.enter();
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
        let durable = |open: &super::journal::Open| !matches!(open.waits_for, WaitsFor::Branches);
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

    fn blocked_or(&self, stand: Stand) -> Stand {
        match self.journal.pages().trouble.clone() {
            Some(blocked) => Stand::Blocked(blocked),
            None => stand,
        }
    }

    /// Whether something that the code could not know of before has come of it by itself: a step has ended, a condition
    /// has become true. Then it was brought, and the code is to be polled.
    pub fn bring_own(&mut self) -> bool {
        let _inside = self.journal.bell.enter();
        let mut pages = self.journal.pages();
        if let Some((number, ran)) = pages.ran.pop_front() {
            drop(pages);
            self.end_step(number, ran);
            return true;
        }
        let is_true = |open: &super::journal::Open| {
            matches!(open.waits_for, WaitsFor::Condition { is_true: true })
                && open.brought.is_none()
        };
        // Children of whom none need end are nothing to wait for.
        let joins_none = |open: &super::journal::Open| {
            matches!(open.waits_for, WaitsFor::Children { wanted: 0, .. }) && open.brought.is_none()
        };
        let mut open = pages.open.iter();
        let found = open.find_map(|(number, open)| match open {
            open if is_true(open) => Some((*number, serde_json::Value::Bool(true))),
            open if joins_none(open) => Some((*number, serde_json::Value::Array(Vec::new()))),
            _ => None,
        });
        let Some((number, value)) = found else {
            return false;
        };
        drop(pages);
        self.end(number, Ending::Value(Json::from(value)), None);
        true
    }

    fn end_step(&mut self, number: u32, ran: Ran) {
        let mut pages = self.journal.pages();
        let Some(open) = pages.open.get_mut(&number) else {
            return;
        };
        let WaitsFor::Step { state, attempts } = &mut open.waits_for else {
            return;
        };
        let count = *attempts;
        let name = open.signature.name.clone();
        if let (Err(error), Some(due_at), Some(name)) = (&ran.outcome, ran.again, &name) {
            *state = StepState::Again(due_at);
            let again = TriedAgain {
                operation: number,
                name: name.clone(),
                attempts: count,
                error: error.clone(),
                due_at,
            };
            pages.fresh.operations.push(Operation::TriedAgain(again));
            return;
        }
        let outcome = match ran.outcome {
            Ok(value) => Ending::Value(value),
            Err(error) => Ending::Error(error),
        };
        let completed = Completed {
            name,
            attempts: Some(count),
            duration_us: Some(ran.duration_us),
            outcome: outcome.clone(),
            ..came_to(Some(number), OperationKind::Step, Json::null())
        };
        pages.fresh.operations.push(Operation::Completed(completed));
        pages.bring(number, Brought::Ending(outcome, None));
        pages.wake_conditions();
    }

    /// Ends an operation, and tells of it.
    fn end(&mut self, number: u32, outcome: Ending, signal: Option<&Command>) {
        let mut pages = self.journal.pages();
        let Some(open) = pages.open.get(&number) else {
            return;
        };
        let completed = Completed {
            name: open.signature.name.clone(),
            message: signal.map(|signal| signal.id),
            outcome: outcome.clone(),
            ..came_to(Some(number), open.signature.operation_kind, Json::null())
        };
        pages.fresh.operations.push(Operation::Completed(completed));
        if let Some(signal) = signal {
            pages.fresh.takes.push(Taken {
                id: signal.id,
                name: signal.name.clone(),
            });
        }
        pages.bring(
            number,
            Brought::Ending(outcome, signal.cloned().map(Box::new)),
        );
        pages.wake_conditions();
    }

    /// Brings the code the first message that it has a use for now. Whether there was one.
    pub fn bring_mail(&mut self) -> bool {
        let mut mail = std::mem::take(&mut self.mail);
        mail.append(&mut self.journal.pages().returned);
        mail.sort_by_key(|message| message.sequence);
        let taken = mail.iter().position(|message| self.offer(message));
        if let Some(at) = taken {
            mail.remove(at);
        }
        self.mail = mail;
        taken.is_some()
    }

    /// Whether an update is known that signals of a name which is waited for may have come before.
    pub fn could_overtake(&self) -> bool {
        let pages = self.journal.pages();
        let mut open = pages.open.values();
        let mut mail = self.mail.iter();
        mail.any(|message| message.kind == CommandKind::Update)
            && open.any(|open| matches!(open.waits_for, WaitsFor::Signal))
    }

    /// Answers the updates that are there and that the code has given no handler: it would wait for them to no end.
    pub fn refuse_updates(&mut self) {
        let mail = std::mem::take(&mut self.mail);
        let (updates, others): (Vec<_>, Vec<_>) = mail
            .into_iter()
            .partition(|message| message.kind == CommandKind::Update);
        self.mail = others;
        for update in updates {
            let error = format!(
                "the workflow answers no update {:?} where it stands: give it a handler before the first `await`",
                update.name.as_str()
            );
            let completed = Completed {
                name: Some(update.name.clone()),
                message: Some(update.id),
                arguments: Some(update.arguments.clone()),
                outcome: Ending::Error(error.clone()),
                ..came_to(None, OperationKind::Update, Json::null())
            };
            self.answered(update.id, Json::null(), Some(error), completed);
        }
    }

    /// Brings the code a message, when it has a use for it now. Whether it had.
    fn offer(&mut self, message: &Command) -> bool {
        let _inside = self.journal.bell.enter();
        match message.kind {
            CommandKind::Signal => {
                let number = {
                    let pages = self.journal.pages();
                    let mut open = pages.open.iter();
                    let waits = open.find(|(number, open)| {
                        open.brought.is_none()
                            && match &open.waits_for {
                                WaitsFor::Signal => {
                                    open.signature.name.as_ref() == Some(&message.name)
                                }
                                WaitsFor::Event(_) => self.is_for(message, **number),
                                _ => false,
                            }
                    });
                    waits.map(|(number, _)| *number)
                };
                let Some(number) = number else {
                    // An event that was matched for an operation which nobody waits for any more is nobody's.
                    let is_event = message.name.event_type().is_some();
                    if is_event {
                        self.journal.pages().fresh.takes.push(Taken {
                            id: message.id,
                            name: message.name.clone(),
                        });
                    }
                    return is_event;
                };
                self.end(
                    number,
                    Ending::Value(message.arguments.clone()),
                    Some(message),
                );
            }
            CommandKind::Update => {
                let mut completed = Completed {
                    name: Some(message.name.clone()),
                    message: Some(message.id),
                    arguments: Some(message.arguments.clone()),
                    ..came_to(None, OperationKind::Update, Json::null())
                };
                let most = self.journal.about.limits.payload_bytes;
                let Some(handled) = self.handle(&completed, &message.arguments, most) else {
                    return false;
                };
                let (result, error) = match handled {
                    Ok(result) => (result, None),
                    Err(error) => (Json::null(), Some(error)),
                };
                completed.outcome = match &error {
                    Some(error) => Ending::Error(error.clone()),
                    None => Ending::Value(result.clone()),
                };
                self.answered(message.id, result, error, completed);
            }
            CommandKind::Cancel => {
                let reason = reason_of(&message.arguments);
                let completed = Completed {
                    message: Some(message.id),
                    outcome: Ending::Error(reason.clone()),
                    ..came_to(None, OperationKind::Cancel, Json::null())
                };
                self.answered(message.id, Json::null(), None, completed);
                self.cancel(&reason);
            }
        }
        true
    }

    /// Whether an event was matched for that operation: the wait's id says so.
    fn is_for(&self, message: &Command, number: u32) -> bool {
        let wait_id = format!("wait:{}:{number}", self.id());
        message
            .wait_id
            .as_ref()
            .is_some_and(|id| id.as_str() == wait_id)
    }

    fn answered(
        &mut self,
        update_id: abide_core::model::CommandId,
        result: Json,
        error: Option<String>,
        completed: Completed,
    ) {
        let mut pages = self.journal.pages();
        pages.fresh.updates.push(Answered {
            update_id,
            result,
            error,
        });
        pages.fresh.operations.push(Operation::Completed(completed));
        pages.wake_conditions();
    }

    /// Answers an update by the handler that the code has given it; none when there is none. One that fails leaves the
    /// code's state as it was (rule 9.2).
    fn handle(
        &self,
        of: &Completed,
        arguments: &Json,
        most: usize,
    ) -> Option<Result<Json, String>> {
        let name = of.name.clone()?;
        let mut pages = self.journal.pages();
        let mut handler = pages.updates.remove(&name)?;
        let saves = std::mem::take(&mut pages.saves);
        drop(pages);
        let restores: Vec<_> = saves.iter().map(|save| save()).collect();
        self.journal.pages().saves = saves;
        let answer = self.call(
            &mut handler,
            &format!("the handler of update {:?}", name.as_str()),
            arguments,
        );
        let answer = answer.and_then(|answer| match answer.size() {
            size if size > most => Err(format!(
                "the answer is too large: {size} bytes, and `payload_bytes` is {most}"
            )),
            _ => Ok(answer),
        });
        self.journal.pages().updates.insert(name, handler);
        if answer.is_err() {
            restores.into_iter().for_each(|restore| restore());
        }
        Some(answer)
    }

    fn call(&self, handler: &mut Handler, within: &str, arguments: &Json) -> Result<Json, String> {
        self.journal.pages().within = Some(Within::Other(within.to_owned()));
        let answer = catch_unwind(AssertUnwindSafe(|| handler(arguments)));
        self.journal.pages().within = None;
        let answer = answer.unwrap_or_else(|panic| Err(Fault::panic(&*panic).to_string()));
        answer.map_err(|error| self.journal.about.limits.cut_error(&error))
    }

    /// Answers a query by the handler that the code has given it.
    pub fn query(&self, name: &abide_core::model::Name, arguments: &Json) -> Result<Json, String> {
        let handler = self.journal.pages().queries.remove(name);
        let Some(mut handler) = handler else {
            let mut known: Vec<String> = self
                .journal
                .pages()
                .queries
                .keys()
                .map(ToString::to_string)
                .collect();
            known.sort_unstable();
            return Err(format!(
                "the workflow answers no query {:?} here; it answers {}",
                name.as_str(),
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                }
            ));
        };
        let _inside = self.journal.bell.enter();
        let answer = self.call(
            &mut handler,
            &format!("the handler of query {:?}", name.as_str()),
            arguments,
        );
        // rule 12.5: it may have asked for what it must not.
        match self.journal.pages().trouble.clone() {
            Some(blocked) => Err(blocked.to_string()),
            None => answer,
        }
    }

    /// Tells every operation that the code waits for that the run is cancelled.
    fn cancel(&mut self, reason: &str) {
        let mut pages = self.journal.pages();
        pages.cancelled.get_or_insert(reason.to_owned());
        let numbers: Vec<u32> = pages.open.keys().copied().collect();
        for number in numbers {
            let reached = pages.open.get(&number).is_some_and(|open| {
                !matches!(open.waits_for, WaitsFor::Branches) && open.brought.is_none()
            });
            if reached {
                pages.bring(number, Brought::Cancelled(reason.to_owned()));
            }
        }
    }

    /// Ends the operation whose time was up first, if there is one. Whether there was.
    pub fn fire(&mut self, now: Timestamp) -> bool {
        let _inside = self.journal.bell.enter();
        let due = self.next_due(Some(now));
        let Some((_, number)) = due else { return false };
        let mut pages = self.journal.pages();
        let Some(open) = pages.open.get_mut(&number) else {
            return false;
        };
        let ending = match &mut open.waits_for {
            WaitsFor::Step { state, .. } => {
                *state = StepState::Wanted;
                return true;
            }
            WaitsFor::Time => Ending::Value(Json::null()),
            _ => Ending::TimedOut,
        };
        drop(pages);
        self.end(number, ending, None);
        true
    }

    /// The earliest moment at which something is due, at the latest at that one, and the operation it is of.
    pub fn next_due(&self, latest: Option<Timestamp>) -> Option<(Timestamp, u32)> {
        let pages = self.journal.pages();
        let dues = pages.open.iter().filter(|(_, open)| open.brought.is_none());
        let dues = dues.filter_map(|(number, open)| {
            let due = match open.waits_for {
                WaitsFor::Step {
                    state: StepState::Again(due),
                    ..
                } => Some(due),
                _ => open.deadline,
            };
            Some((due?, *number))
        });
        dues.filter(|(due, _)| latest.is_none_or(|latest| *due <= latest))
            .min()
    }

    /// Ends an operation that waited for children.
    pub fn join(&mut self, number: u32, outcome: Ending) {
        let _inside = self.journal.bell.enter();
        self.end(number, outcome, None);
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
