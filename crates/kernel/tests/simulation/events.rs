//! Events in a simulation, and what must become of each.

use abide_kernel::conformance::waiters::of_waiters;
use abide_kernel::model::{Event, HistoryEvent, InstanceId, Publish, Published, Status, Waiter};
use abide_kernel::rules::event::Payload;
use abide_kernel::{Answer, Op};

use crate::world::{Heard, World};

impl World {
    pub fn some_publishes(&mut self) -> Vec<Publish> {
        let count = self.rng.between(1, 3);
        (0..count).map(|_| self.rng.some_publish()).collect()
    }

    /// Publishes events; if the answer is lost, publishes them again, and those with an id are the same then.
    pub fn publish(&mut self) {
        let mut publishes = self.some_publishes();
        let described: Vec<String> = publishes
            .iter()
            .map(|one| format!("{} {}", one.event_type, one.payload))
            .collect();
        self.tell(format!("publish {}", described.join(", ")));
        let before = self.waiters();
        match self.send([Op::Publish(publishes.clone())].into()) {
            Heard::Answers(answers) => {
                self.check_published(&publishes, &before, &published(answers))
            }
            Heard::Refused => assert_eq!(before, self.waiters()),
            Heard::Lost(first) => {
                let mut first = published(first);
                self.check_published(&publishes, &before, &first);
                self.tell("  they are published again".into());
                let mut known = publishes.iter().map(|one| one.event_id.is_some());
                first.retain(|_| known.next().unwrap());
                publishes.retain(|one| one.event_id.is_some());
                let again = self.run([Op::Publish(publishes)].into()).unwrap();
                for (first, again) in first.iter().zip(published(again)) {
                    assert_eq!(first.sequence, again.sequence);
                    assert!(again.duplicate && again.matched == 0, "{again:?}");
                }
            }
        }
    }

    /// Checks that the events came to exactly the waiters whose conditions they meet, each of which the first one wakes
    /// (rules 14.1 and 14.5), found without the index.
    fn check_published(&self, publishes: &[Publish], before: &[Waiter], answers: &[Published]) {
        let mut left: Vec<&Waiter> = before.iter().collect();
        let mut failed = false;
        for (publish, answer) in publishes.iter().zip(answers) {
            let mut woken: Vec<InstanceId> = Vec::new();
            if !answer.duplicate {
                let meets = |one: &&&Waiter| {
                    one.event_type == publish.event_type
                        && Payload::of(&publish.payload).satisfies(&one.conditions)
                };
                woken = left.iter().filter(meets).map(|one| one.instance).collect();
                woken.sort_unstable();
                woken.dedup();
            }
            assert_eq!(answer.matched as usize, woken.len(), "{publish:?}");
            left.retain(|one| !woken.contains(&one.instance));
            for id in woken {
                let history = self.history(id);
                let recorded = history.iter().any(|entry| match &entry.what {
                    HistoryEvent::EventMatched { event_id, .. } => *event_id == answer.event_id,
                    _ => false,
                });
                let found = self.instances().into_iter().find(|one| one.id == id);
                let found = found.unwrap();
                assert!(recorded || !found.history, "{id} has no record of it");
                let runs = matches!(found.status, Status::Runnable | Status::Executing);
                let fails = self.met_taken_key(id);
                assert!(runs || fails, "{id} is {}", found.status);
                failed |= fails;
            }
        }
        // The parents of those that failed are notified, and may wait no more either.
        if !failed {
            let left: Vec<Waiter> = left.into_iter().cloned().collect();
            assert_eq!(left, self.waiters(), "others wait as before");
        }
        assert!(of_waiters(&self.instances(), &self.waiters()).is_empty());
        let kept: Vec<Event> = self.events();
        let is_kept = |one: &Published| kept.iter().any(|event| event.sequence == one.sequence);
        assert!(answers.iter().all(is_kept));
    }
}

fn published(answers: Vec<Answer>) -> Vec<Published> {
    match answers.into_iter().next() {
        Some(Answer::Published(each)) => each.into_iter().map(Result::unwrap).collect(),
        other => panic!("events are not answered with {other:?}"),
    }
}
