//! Replay: delivers the inputs in a workflow's history to its code again, in their original order.

use std::task::Waker;

use abide_core::model::{Blocked, Completed, Ending, OperationKind};

use super::journal::Brought;
use super::live::{Live, Stand};
use super::recorded::{Recalled, named};

impl Live {
    /// Delivers all inputs in the history to the code, in their original order (rule 12.1).
    pub fn replay(&mut self) -> Stand {
        let mut stand = self.poll(Waker::noop());
        while let Stand::Waits = stand {
            let Some(recalled) = self.journal.pages().recorded.brought.pop_front() else {
                return self.replayed();
            };
            let brought = match recalled {
                Recalled::End(completed) => self.bring_again(completed),
                Recalled::Update(opened) => self.begin_again(opened),
            };
            if let Err(blocked) = brought {
                return Stand::Blocked(blocked);
            }
            stand = self.poll(Waker::noop());
        }
        let mut pages = self.journal.pages();
        if let (Stand::Returned(_), true) = (&stand, pages.is_replaying()) {
            let number = pages.count() + 1;
            let recorded = pages.recorded.name_of(number);
            let recorded = recorded.or_else(|| pages.recorded.brought.front().map(Recalled::name));
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

    /// Checks the code at the end of its history: it must have requested everything that is recorded there. Data that
    /// only replay needs is dropped.
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
        } else if let Some((number, completed)) = pages.recorded.answered.iter().next() {
            let (number, recorded) = (*number, format!("the end of {}", named(completed)));
            pages.differs(number, &recorded, "more of it: it waits for something else");
        }
        pages.recorded.forget();
        drop(pages);
        self.blocked_or(Stand::Waits)
    }

    /// Delivers one input of the history.
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
                    None => {
                        self.differs(&completed, "no such update, or handles it in `async` code")?
                    }
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

    fn differs(&self, completed: &Completed, requested: &str) -> Result<(), Blocked> {
        let mut pages = self.journal.pages();
        let number = completed.operation.unwrap_or_else(|| pages.count());
        pages.differs(
            number,
            &format!("the end of {}", named(completed)),
            requested,
        );
        pages.trouble.clone().map_or(Ok(()), Err)
    }
}
