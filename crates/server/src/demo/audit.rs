//! An audit of the instances that have ended: every step must be committed exactly once.

use std::collections::BTreeSet;

use abide::history::{Entry, HistoryEvent};
use abide::model::{Instance, Kind};
use abide::store::Filter;
use abide::{Abide, Error, InstanceId, Status};

use super::checkout::Receipt;

/// Maximum number of children of one instance that are checked.
const CHILDREN_MAX: usize = 100;
/// Maximum number of problems that are kept.
const WRONG_MAX: usize = 20;

/// The findings so far.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Number of instances that ended, without children.
    pub ended: u64,
    /// Number of steps that they and their children committed.
    pub steps: u64,
    /// Number of those steps that were interrupted by a worker's death and ran again.
    pub again: u64,
    /// The problems, each with the name of the instance.
    pub wrong: Vec<String>,
}

impl Audit {
    /// Checks an instance that has ended, and its children. Returns `None` if it does not exist.
    pub async fn see(&mut self, abide: &Abide, id: InstanceId) -> Result<Option<Instance>, Error> {
        self.ended += 1;
        let Some(instance) = abide.get(id).await? else {
            self.note(format!("instance {id} is not there any more"));
            return Ok(None);
        };
        self.inspect(abide, &instance).await?;
        let children = Filter {
            parent: Some(id),
            ..Filter::default()
        };
        for child in abide.list(&children, None, CHILDREN_MAX).await?.items {
            // A child may outlive a cancelled parent.
            if child.status.is_terminal() {
                self.inspect(abide, &child).await?;
            }
        }
        Ok(Some(instance))
    }

    async fn inspect(&mut self, abide: &Abide, instance: &Instance) -> Result<(), Error> {
        let history = abide.history(instance.id).await?;
        match check(instance, &history) {
            Ok(steps) => self.steps += steps,
            Err(problem) => self.note(format!("{}: {problem}", called(instance))),
        }
        let again = |entry: &&Entry| matches!(entry.what, HistoryEvent::Reclaimed { .. });
        self.again += history.iter().filter(again).count() as u64;
        Ok(())
    }

    fn note(&mut self, problem: String) {
        if self.wrong.len() < WRONG_MAX {
            self.wrong.push(problem);
        }
    }
}

/// The name of an instance for people.
pub fn called(instance: &Instance) -> String {
    match &instance.key {
        Some(key) => key.to_string(),
        None => format!("{} {}", instance.machine, instance.id),
    }
}

/// Checks that a history contains every step once, and one end. Returns the number of steps.
fn check(instance: &Instance, history: &[Entry]) -> Result<u64, String> {
    let happened = || history.iter().map(|entry| &entry.what);
    // An event that stands for several attempts has taken a number for each (rule 16.1).
    let taken: u32 = happened().map(HistoryEvent::numbers).sum();
    if taken != instance.history_seq || !history.is_sorted_by(|one, next| one.seq < next.seq) {
        return Err("its history has gaps".to_owned());
    }
    let ends = happened().filter(|what| {
        matches!(
            what,
            HistoryEvent::Done
                | HistoryEvent::Failed { .. }
                | HistoryEvent::Cancelled { .. }
                | HistoryEvent::Continued { .. }
        )
    });
    match ends.count() {
        1 => {}
        count => return Err(format!("it has ended {count} times")),
    }
    let steps = match instance.kind {
        Kind::Machine => machine_steps(history)?,
        Kind::Workflow => operations(instance, history)?,
    };
    if instance.machine.as_str() == "checkout" && instance.status == Status::Done {
        effects(instance, history)?;
    }
    Ok(steps)
}

/// Checks the steps of a machine: their numbers increase one by one. Returns their number.
fn machine_steps(history: &[Entry]) -> Result<u64, String> {
    let numbers = history.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::StepCompleted { step_sequence, .. }
        | HistoryEvent::StepFailed { step_sequence, .. } => Some(*step_sequence),
        _ => None,
    });
    let mut count = 0;
    let mut last: Option<u32> = None;
    for number in numbers {
        match last {
            Some(last) if number <= last => return Err(format!("step {number} ran twice")),
            Some(last) if number > last + 1 => return Err(format!("step {} is lost", last + 1)),
            _ => {}
        }
        last = Some(number);
        count += 1;
    }
    Ok(count)
}

/// Checks the operations of a workflow: none was opened or completed twice, and if the workflow is done, all are
/// completed. Returns the number of completed ones.
fn operations(instance: &Instance, history: &[Entry]) -> Result<u64, String> {
    let (mut opened, mut completed) = (BTreeSet::new(), BTreeSet::new());
    for entry in history {
        let is_new = match &entry.what {
            HistoryEvent::OperationOpened(one) => opened.insert(one.operation),
            HistoryEvent::OperationCompleted(one) => {
                one.operation.is_none_or(|number| completed.insert(number))
            }
            _ => true,
        };
        if !is_new {
            return Err(format!(
                "event {} tells of an operation a second time",
                entry.seq
            ));
        }
    }
    let lost = opened.difference(&completed).next();
    match lost {
        Some(lost) if instance.status == Status::Done => Err(format!("operation {lost} is lost")),
        _ => Ok(completed.len() as u64),
    }
}

/// Checks the effects of an order: its result must list the steps that ran according to its history.
fn effects(instance: &Instance, history: &[Entry]) -> Result<(), String> {
    let receipt = instance.result.as_ref().map(|one| one.to::<Receipt>());
    let Some(Ok(receipt)) = receipt else {
        return Err("it is done, and came to nothing".to_owned());
    };
    let ran = history.iter().filter_map(|entry| match &entry.what {
        HistoryEvent::StepCompleted { step, .. } => Some(step.as_str()),
        _ => None,
    });
    let done = receipt
        .effects
        .iter()
        .map(|effect| effect.split(':').next().unwrap_or_default());
    match ran.clone().eq(done) {
        true => Ok(()),
        false => Err(format!(
            "its history says {}, its effects are {}",
            ran.collect::<Vec<_>>().join(", "),
            receipt.effects.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::checkout::{Checkout, Order, PAID};

    /// An order that has ended, with its history.
    async fn order() -> (Instance, Vec<Entry>) {
        let abide = Abide::open("memory:").await.unwrap();
        let engine = abide.engine().machine(Checkout).start().await.unwrap();
        let order = abide.start(Checkout, Order::number(1)).await.unwrap();
        abide.signal(order.id(), PAID, &65).await.unwrap();
        order.result().await.unwrap();
        let instance = abide.get(order.id()).await.unwrap().unwrap();
        let history = abide.history(order.id()).await.unwrap();
        engine.shutdown().await;
        (instance, history)
    }

    /// The position of a step's event.
    fn position_of(history: &[Entry], wanted: &str) -> usize {
        let is_it = |entry: &Entry| matches!(&entry.what, HistoryEvent::StepCompleted { step, .. } if step.as_str() == wanted);
        history.iter().position(is_it).unwrap()
    }

    /// Checks a changed history, after numbering its events again.
    fn checked(mut instance: Instance, mut history: Vec<Entry>) -> Result<u64, String> {
        for (seq, entry) in (1..).zip(&mut history) {
            entry.seq = seq;
        }
        instance.row.history_seq = history.len() as u32;
        check(&instance, &history)
    }

    #[tokio::test]
    async fn a_history_with_a_lost_or_repeated_step_is_recognized() {
        let (instance, history) = order().await;
        assert_eq!(check(&instance, &history), Ok(4), "{history:?}");

        let mut lost = history.clone();
        lost.remove(position_of(&history, "pack"));
        assert!(check(&instance, &lost).unwrap_err().contains("gaps"));
        let error = checked(instance.clone(), lost).unwrap_err();
        assert!(error.contains("is lost"), "{error}");

        let mut twice = history.clone();
        let pack = position_of(&history, "pack");
        twice.insert(pack, history[pack].clone());
        let error = checked(instance.clone(), twice).unwrap_err();
        assert!(error.contains("ran twice"), "{error}");

        let mut other = instance.clone();
        let text = instance
            .result
            .unwrap()
            .as_str()
            .replace("pack: packed", "ship: shipped");
        other.result = Some(serde_json::from_str(&text).unwrap());
        let error = check(&other, &history).unwrap_err();
        assert!(error.contains("its effects are"), "{error}");
    }
}
