//! Updates handled by `async` code: each runs beside the workflow's own code, and is answered when it returns.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use abide_core::model::{
    Answered, Blocked, Command, CommandId, CommandKind, Completed, Ending, Json, Name, Opened,
    Operation, OperationKind, Signature,
};

use super::journal::{Answers, Begin, Handled, Handling};
use super::live::Live;
use super::recorded::came_to;
use super::{Workflow, poll_runtime};
use crate::machine::Fault;

/// A handler that has returned.
pub(super) struct Returned {
    number: u32,
    answer: Result<Json, String>,
    /// `true` if it awaited something that is not durable.
    pub missed: bool,
}

/// Polls handlers in the order in which they began, and removes those that have returned.
pub(super) fn poll_all(handlers: &mut BTreeMap<u32, Handling>, waker: &Waker) -> Vec<Returned> {
    let mut returned = Vec::new();
    for (number, handling) in handlers.iter_mut() {
        let poll = || handling.as_mut().poll(&mut Context::from_waker(waker));
        let (answer, missed) = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => continue,
            Ok(Poll::Ready(answer)) => (answer, false),
            Err(panic) => {
                let panic = Fault::panic(&*panic).to_string();
                let missed = poll_runtime::is_missed(&panic);
                (Err(panic), missed)
            }
        };
        returned.push(Returned {
            number: *number,
            answer,
            missed,
        });
    }
    for one in &returned {
        handlers.remove(&one.number);
    }
    returned
}

impl Live {
    /// Returns the `async` code that handles updates with this name.
    pub(super) fn handler(&self, name: &Name) -> Option<Begin> {
        match self.journal.pages().updates.get(name) {
            Some(Answers::InTime(begin)) => Some(begin.clone()),
            _ => None,
        }
    }

    /// Begins to handle an update, and records that (rule 12.1), so that replay begins it at the same position.
    pub(super) fn begin(&mut self, update: &Command, begin: &Begin) {
        let signature = Signature::named(OperationKind::Update, update.name.clone());
        let number = {
            let mut pages = self.journal.pages();
            // Without a number the code cannot continue, which `next_number` has noted.
            let Some(number) = pages.next_number(&signature) else {
                return;
            };
            pages.fresh.operations.push(Operation::Opened(Opened {
                operation: number,
                signature,
                deadline: None,
                message: Some(update.id),
                arguments: Some(update.arguments.clone()),
                graph_step: None,
            }));
            number
        };
        let handled = Handled {
            message: update.id,
            name: update.name.clone(),
        };
        self.add_handler(number, handled, begin, update.arguments.clone());
    }

    /// Begins to handle an update again, in a replay.
    pub(super) fn begin_again(&mut self, opened: Opened) -> Result<(), Blocked> {
        let _inside = self.journal.bell.enter();
        let name = opened.signature.name.clone();
        let begin = name.as_ref().and_then(|name| self.handler(name));
        let number = self.journal.pages().next_number(&opened.signature);
        let problem = match (number, &begin) {
            (_, None) => Some("no such update, or answers it without `async` code".to_owned()),
            (Some(number), _) if number != opened.operation => {
                Some(format!("{} as operation {number}", opened.signature))
            }
            _ => None,
        };
        if let Some(problem) = problem {
            let mut pages = self.journal.pages();
            let recorded = opened.signature.to_string();
            pages.differs(opened.operation, &recorded, &problem);
        }
        if let Some(blocked) = self.journal.pages().trouble.clone() {
            return Err(blocked);
        }
        if let (Some(begin), Some(message), Some(name)) = (begin, opened.message, name) {
            let arguments = opened.arguments.unwrap_or_default();
            let handled = Handled { message, name };
            self.add_handler(opened.operation, handled, &begin, arguments);
        }
        Ok(())
    }

    fn add_handler(&mut self, number: u32, handled: Handled, begin: &Begin, arguments: Json) {
        let workflow = Workflow {
            journal: self.journal.clone(),
            graph_step: None,
        };
        let handling = begin(workflow, arguments);
        // The replay would use up a budget, and wake the code from outside.
        let handling = Box::pin(tokio::task::unconstrained(handling));
        self.handlers.insert(number, handling);
        let mut pages = self.journal.pages();
        pages.handled.insert(number, handled);
        pages.wake_conditions();
    }

    /// Answers an update whose handler has returned.
    pub(super) fn answer(&mut self, returned: Returned) {
        let Returned { number, answer, .. } = returned;
        let limits = self.journal.about.limits.clone();
        let answer = within(answer, limits.payload_bytes).map_err(|error| limits.cut_error(&error));
        let _inside = self.journal.bell.enter();
        let mut pages = self.journal.pages();
        let Some(Handled { message, name }) = pages.handled.remove(&number) else {
            return;
        };
        let update = format!("update {:?}", name.as_str());
        match (pages.recorded.answered.remove(&number), answer) {
            (Some(recorded), Err(error)) if matches!(recorded.outcome, Ending::Value(_)) => {
                let recorded = format!("an answer to {update}");
                pages.differs(number, &recorded, &format!("its failure: {error}"));
            }
            (Some(_), _) => {}
            (None, _) if pages.is_replaying() => {
                pages.differs(
                    number,
                    &format!("no answer to {update} yet"),
                    "to answer it",
                );
            }
            (None, answer) => {
                let (result, error) = match answer {
                    Ok(result) => (result, None),
                    Err(error) => (Json::null(), Some(error)),
                };
                let outcome = match &error {
                    Some(error) => Ending::Error(error.clone()),
                    None => Ending::Value(result.clone()),
                };
                pages.fresh.updates.push(Answered {
                    update_id: message,
                    result,
                    error,
                });
                let completed = ended(number, message, name, outcome);
                pages.fresh.operations.push(completed);
            }
        }
        pages.wake_conditions();
    }

    /// Stops running handlers after the workflow's code has returned. Their updates fail with the run. If the run
    /// continues as new they fail too, because only updates that have not begun move to the new run (rule 9.2).
    pub(super) fn stop_handlers(&mut self, continues: bool) {
        for (number, handling) in std::mem::take(&mut self.handlers) {
            // Dropping it ends the waits of its operations.
            drop(handling);
            let mut pages = self.journal.pages();
            let Some(Handled { message, name }) = pages.handled.remove(&number) else {
                continue;
            };
            let fresh = &mut pages.fresh;
            if continues {
                fresh.updates.push(Answered {
                    update_id: message,
                    result: Json::null(),
                    error: Some("the run continued as new before its handler returned".into()),
                });
            }
            let completed = ended(number, message, name, Ending::Abandoned);
            fresh.operations.push(completed);
        }
    }

    /// The number of updates that are known and not answered.
    pub(super) fn held(&self) -> u32 {
        let waiting = self.pending.iter();
        let waiting = waiting.filter(|message| message.kind != CommandKind::Signal);
        let held = waiting.count() + self.journal.pages().handled.len();
        u32::try_from(held).unwrap_or(u32::MAX)
    }
}

/// Returns the answer, or an error if it is too large.
pub(super) fn within(answer: Result<Json, String>, most: usize) -> Result<Json, String> {
    let answer = answer?;
    match answer.size() {
        size if size > most => Err(format!(
            "the answer is too large: {size} bytes, and `payload_bytes` is {most}"
        )),
        _ => Ok(answer),
    }
}

fn ended(number: u32, message: CommandId, name: Name, outcome: Ending) -> Operation {
    Operation::Completed(Completed {
        name: Some(name),
        message: Some(message),
        outcome,
        ..came_to(Some(number), OperationKind::Update, Json::null())
    })
}
