//! The steps that a worker held when it died, and the workers that continue them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use abide::model::{Instance, WorkerId};
use abide::{Abide, Error, InstanceId, Status};

/// A step that a dead worker held.
#[derive(Clone, Debug)]
pub struct Held {
    id: InstanceId,
    worker: Option<WorkerId>,
    step_seq: u32,
    /// The name of the instance.
    pub name: String,
}

impl Held {
    /// Records the step that an instance was running.
    pub fn new(instance: &Instance, name: String) -> Self {
        Self {
            id: instance.id,
            worker: instance.worker,
            step_seq: instance.step_seq,
            name,
        }
    }

    /// `true` if the instance is still as the dead worker left it, or no worker has claimed it yet.
    fn waits(&self, now: &Instance) -> bool {
        let is_left = now.worker == self.worker && now.status == Status::Executing;
        (is_left || now.status == Status::Runnable) && now.step_seq == self.step_seq
    }
}

/// The death of a worker that was running steps.
#[derive(Debug)]
pub struct Death {
    at: Instant,
    held: Vec<Held>,
    names: Vec<String>,
    takers: BTreeSet<u32>,
}

impl Death {
    /// Records a death that happened now.
    pub fn new(held: Vec<Held>) -> Self {
        Self {
            at: Instant::now(),
            held,
            names: Vec::new(),
            takers: BTreeSet::new(),
        }
    }

    /// `true` if all steps that the worker held have continued.
    pub const fn is_over(&self) -> bool {
        self.held.is_empty()
    }

    /// Checks which steps have continued, and at which workers. When all have, returns a description.
    pub async fn describe(
        &mut self,
        abide: &Abide,
        known: &BTreeMap<WorkerId, u32>,
    ) -> Result<Option<String>, Error> {
        let mut left = Vec::new();
        for held in std::mem::take(&mut self.held) {
            let now = abide.get(held.id).await?;
            if now.as_ref().is_some_and(|now| held.waits(now)) {
                left.push(held);
                continue;
            }
            let taker = now.and_then(|now| now.worker);
            self.takers.extend(taker.and_then(|id| known.get(&id)));
            self.names.push(held.name);
        }
        self.held = left;
        Ok(self.is_over().then(|| self.description()))
    }

    fn description(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let numbers: Vec<String> = self.takers.iter().map(ToString::to_string).collect();
        let at = match numbers.len() {
            // The steps were already finished before this check.
            0 => String::new(),
            1 => format!(" at worker {}", numbers.concat()),
            _ => format!(" at workers {}", numbers.join(" and ")),
        };
        let later = self.at.elapsed().as_secs_f64();
        format!("{} went on{at}, {later:.1} s later", several(&names))
    }
}

/// Maximum total length of two names that are shown together.
const NAMES: usize = 22;

/// Lists at most two names, the shortest first, and the number of the others.
pub fn several(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_by_key(|name| name.len());
    match names.as_slice() {
        [] => "nothing".to_owned(),
        [one] => (*one).to_owned(),
        [one, two] => format!("{one} and {two}"),
        [one, two, more @ ..] if one.len() + two.len() <= NAMES => {
            format!("{one}, {two} and {} more", more.len())
        }
        [one, more @ ..] => format!("{one} and {} more", more.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_listed_and_the_others_counted() {
        let listed = |names: &[&str]| several(names);
        assert_eq!(listed(&["order:1"]), "order:1");
        assert_eq!(listed(&["order:10", "order:2"]), "order:2 and order:10");
        let many = ["hand-over of parcel:1", "order:10", "order:2", "order:3"];
        assert_eq!(listed(&many), "order:2, order:3 and 2 more");
        let long = [
            "weigh of parcel:17",
            "pick of parcel:19",
            "resize of album:3",
        ];
        assert_eq!(listed(&long), "pick of parcel:19 and 2 more");
    }
}
