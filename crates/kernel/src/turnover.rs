//! Counts of the instances that transactions start and end, for the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_core::model::{Name, Row, Status};
use metrics::{counter, histogram};

use crate::label::label;

/// The instances that one transaction has started and ended. They are counted after the commit, in the process that
/// committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turnover {
    /// The number of started instances, by machine.
    started: BTreeMap<Name, u64>,
    /// The durations of the ended instances, by machine and status: most transactions end instances of one machine.
    ended: BTreeMap<(Name, Status), Vec<Duration>>,
}

impl Turnover {
    /// Records a started instance.
    pub(crate) fn started(&mut self, machine: &Name) {
        match self.started.get_mut(machine) {
            Some(count) => *count += 1,
            None => drop(self.started.insert(machine.clone(), 1)),
        }
    }

    /// Records an ended instance.
    pub(crate) fn ended(&mut self, row: &Row) {
        let finished_at = row.finished_at.unwrap_or(row.created_at);
        let of = (row.machine.clone(), row.status);
        let took = finished_at.since(row.created_at);
        self.ended.entry(of).or_default().push(took);
    }

    /// Adds the counts of another turnover.
    pub(crate) fn merge(&mut self, other: Self) {
        for (machine, count) in other.started {
            *self.started.entry(machine).or_default() += count;
        }
        for (of, took) in other.ended {
            self.ended.entry(of).or_default().extend(took);
        }
    }

    /// Adds the counts to the metrics.
    pub(crate) fn count(self) {
        for (machine, count) in &self.started {
            let labels = [label("machine", machine.as_str())];
            counter!("abide_instances_started_total", labels.iter()).increment(*count);
        }
        for ((machine, status), took) in &self.ended {
            let machine = label("machine", machine.as_str());
            let status = metrics::Label::from_static_parts("status", status.name());
            let labels = [machine.clone(), status];
            counter!("abide_instances_ended_total", labels.iter()).increment(took.len() as u64);
            let seconds = histogram!("abide_run_seconds", [machine].iter());
            took.iter().for_each(|took| seconds.record(*took));
        }
    }
}
