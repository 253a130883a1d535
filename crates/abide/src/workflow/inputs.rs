//! Delivers inputs to a workflow's code, one at a time: ends of steps, commands, due times, ends of children.

use std::panic::{AssertUnwindSafe, catch_unwind};

use abide_core::model::{
    Answered, Command, CommandId, CommandKind, Completed, Ending, Json, Name, Operation,
    OperationKind, Taken, Timestamp, TriedAgain,
};
use abide_core::rules::inbox::reason_of;

use super::handling::within;
use super::journal::{Answers, Brought, Handler, Open, Ran, StepState, WaitsFor, Within};
use super::live::Live;
use super::recorded::came_to;
use crate::machine::Fault;

impl Live {
    /// Delivers an input that comes from the code itself: a step has ended, or a condition has become true. `true` if
    /// there was one, so that the code must be polled.
    pub fn bring_own(&mut self) -> bool {
        let _inside = self.journal.bell.enter();
        let mut pages = self.journal.pages();
        if let Some((number, ran)) = pages.ran.pop_front() {
            drop(pages);
            self.end_step(number, ran);
            return true;
        }
        let is_true = |open: &Open| {
            matches!(open.waits_for, WaitsFor::Condition { is_true: true })
                && open.brought.is_none()
        };
        // If no child needs to end, there is nothing to wait for.
        let joins_none = |open: &Open| {
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
            // The code no longer waits for it. Rows that it wrote in its own transaction are rolled back.
            return;
        };
        let WaitsFor::Step { state, attempts } = &mut open.waits_for else {
            return;
        };
        let count = *attempts;
        let name = open.signature.name.clone();
        let graph_step = open.graph_step.clone();
        if let (Err(error), Some(due_at), Some(name)) = (&ran.outcome, ran.again, &name) {
            *state = StepState::Again(due_at);
            let again = TriedAgain {
                operation: number,
                name: name.clone(),
                attempts: count,
                error: error.clone(),
                due_at,
                graph_step,
                folded: None,
            };
            pages.fresh.operations.push(Operation::TriedAgain(again));
            return;
        }
        if let Some(within) = ran.within {
            pages.within_own = Some(within);
        }
        let outcome = match ran.outcome {
            Ok(value) => Ending::Value(value),
            Err(error) => Ending::Error(error),
        };
        let completed = Completed {
            name,
            attempts: Some(count),
            duration_us: Some(ran.duration_us),
            graph_step,
            outcome: outcome.clone(),
            ..came_to(Some(number), OperationKind::Step, Json::null())
        };
        pages.fresh.operations.push(Operation::Completed(completed));
        pages.bring(number, Brought::Ending(outcome, None));
        pages.wake_conditions();
    }

    /// Ends an operation: records its end and delivers it.
    fn end(&mut self, number: u32, outcome: Ending, signal: Option<&Command>) {
        let mut pages = self.journal.pages();
        let Some(open) = pages.open.get(&number) else {
            return;
        };
        let completed = Completed {
            name: open.signature.name.clone(),
            message: signal.map(|signal| signal.id),
            graph_step: open.graph_step.clone(),
            outcome: outcome.clone(),
            ..came_to(Some(number), open.signature.operation_kind, Json::null())
        };
        let graph_step = completed.graph_step.clone();
        pages.fresh.operations.push(Operation::Completed(completed));
        if let Some(signal) = signal {
            pages.fresh.takes.push(Taken {
                id: signal.id,
                name: signal.name.clone(),
                operation: Some(number),
                graph_step,
            });
        }
        pages.bring(
            number,
            Brought::Ending(outcome, signal.cloned().map(Box::new)),
        );
        pages.wake_conditions();
    }

    /// Delivers the first command that the code can use now. `true` if there was one.
    pub fn bring_commands(&mut self) -> bool {
        let mut pending = std::mem::take(&mut self.pending);
        pending.append(&mut self.journal.pages().returned);
        pending.sort_by_key(|message| message.sequence);
        let taken = pending.iter().position(|message| self.offer(message));
        if let Some(at) = taken {
            pending.remove(at);
        }
        self.pending = pending;
        taken.is_some()
    }

    /// `true` if an update is known and about to be handled, and signals that the code waits for may precede it.
    pub fn could_overtake(&self) -> bool {
        let pages = self.journal.pages();
        let mut open = pages.open.values();
        let mut pending = self.pending.iter();
        pending.any(|message| {
            message.kind == CommandKind::Update && pages.updates.contains_key(&message.name)
        }) && open.any(|open| matches!(open.waits_for, WaitsFor::Signal))
    }

    /// Delivers a command, if the code can use it now. `true` if it can.
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
                    // An event that was matched for an operation that is no longer open is taken and discarded.
                    let is_event = message.name.event_type().is_some();
                    if is_event {
                        self.journal.pages().fresh.takes.push(Taken {
                            id: message.id,
                            name: message.name.clone(),
                            operation: None,
                            graph_step: None,
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
                if let Some(begin) = self.handler(&message.name) {
                    self.begin(message, &begin);
                    return true;
                }
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

    /// `true` if an event was matched for this operation, which the id of the wait shows.
    fn is_for(&self, message: &Command, number: u32) -> bool {
        let wait_id = format!("wait:{}:{number}", self.id());
        message
            .wait_id
            .as_ref()
            .is_some_and(|id| id.as_str() == wait_id)
    }

    fn answered(
        &mut self,
        update_id: CommandId,
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

    /// Answers an update with the code's handler. Returns `None` if no handler answers it immediately. A handler that
    /// fails leaves the code's state as before (rule 9.2).
    pub(super) fn handle(
        &self,
        of: &Completed,
        arguments: &Json,
        most: usize,
    ) -> Option<Result<Json, String>> {
        let name = of.name.clone()?;
        let mut pages = self.journal.pages();
        let mut handler = match pages.updates.remove(&name)? {
            Answers::AtOnce(handler) => handler,
            in_time => {
                pages.updates.insert(name, in_time);
                return None;
            }
        };
        let saves = std::mem::take(&mut pages.saves);
        drop(pages);
        let restores: Vec<_> = saves.iter().map(|save| save()).collect();
        self.journal.pages().saves = saves;
        let answer = self.call(
            &mut handler,
            &format!("the handler of update {:?}", name.as_str()),
            arguments,
        );
        let answer = within(answer, most);
        let handler = Answers::AtOnce(handler);
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

    /// Answers a query with the code's handler.
    pub fn query(&self, name: &Name, arguments: &Json) -> Result<Json, String> {
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
        // rule 12.5: the handler may have requested something that it must not.
        match self.journal.pages().trouble.clone() {
            Some(blocked) => Err(blocked.to_string()),
            None => answer,
        }
    }

    /// Notifies every operation that the code waits for that the run is cancelled.
    pub(super) fn cancel(&mut self, reason: &str) {
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

    /// Ends the operation that was due first. `true` if there was one.
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

    /// Returns the earliest due time, if it is not after `latest`, and its operation.
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
}
