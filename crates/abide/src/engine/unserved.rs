//! Warns of work that no live worker can run: no worker has the machine, or no worker serves the queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::model::{Lane, Worker};
use abide_core::rules::liveness::serves_lane;
use abide_kernel::{ReadyLane, Result};

use super::builder::Shared;

/// Checks until the engine stops, and warns of work that two checks in a row have found. It sends no statement to the
/// store between checks. If this worker can run everything that is ready, a check is one small statement.
pub(super) async fn keep_watch(shared: Arc<Shared>) {
    let mut watch = Watch::default();
    while shared.pause(shared.settings.watch).await.is_continue() {
        match unserved(&shared).await {
            Ok(found) => watch
                .see(found)
                .iter()
                .for_each(|text| tracing::warn!("{text}")),
            // Other tasks report that the store is unavailable.
            Err(error) => tracing::debug!(%error, "cannot see whether work waits for a worker"),
        }
    }
}

/// Returns the lanes with ready work that no live worker can run, with a warning for each.
async fn unserved(shared: &Shared) -> Result<BTreeMap<ReadyLane, String>> {
    let (queues, lanes) = (shared.queues(), shared.lanes());
    let own = |one: &ReadyLane| queues.contains(&one.queue) && lanes.contains(&one.lane);
    let mut ready = shared.store.ready_lanes().await?;
    ready.retain(|one| !own(one));
    if ready.is_empty() {
        return Ok(BTreeMap::new());
    }
    let workers = shared.store.workers().await?;
    let unserved = ready.into_iter().filter_map(|one| {
        let text = warning(&one, &workers)?;
        Some((one, text))
    });
    Ok(unserved.collect())
}

/// Returns the warning for a lane with ready work, or `None` if a live worker serves it.
fn warning(ready: &ReadyLane, workers: &[Worker]) -> Option<String> {
    let ReadyLane { queue, lane } = ready;
    let Lane { machine, version } = lane;
    if workers
        .iter()
        .any(|worker| serves_lane(worker, queue, machine, *version))
    {
        return None;
    }
    let has_code = |worker: &&Worker| worker.lanes.contains(lane);
    Some(match workers.iter().find(has_code) {
        Some(worker) => format!(
            "instances of machine {machine} version {version} wait in queue {queue}, which no live worker with code for them serves; serve it: \
             `.queue(\"{queue}\", 64)` where worker {} is started",
            worker.name
        ),
        None => format!(
            "instances of machine {machine} version {version} wait in queue {queue}, and no live worker has code for them; register it with an \
             engine (`.machine(…)`, `.workflow(…)`, `.job(…)`), or start a worker that has it"
        ),
    })
}

/// The lanes that were unserved at the last check; `true` if a warning was given.
#[derive(Default)]
struct Watch(BTreeMap<ReadyLane, bool>);

impl Watch {
    /// Takes the result of a check. Returns the warnings to log: one for each lane that the previous check also found,
    /// once, until the lane is served or has no ready work.
    fn see(&mut self, found: BTreeMap<ReadyLane, String>) -> Vec<String> {
        let before = std::mem::take(&mut self.0);
        let mut texts = Vec::new();
        for (lane, text) in found {
            let was_there = before.get(&lane).copied();
            if was_there == Some(false) {
                texts.push(text);
            }
            self.0.insert(lane, was_there.is_some());
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abide_core::model::{Name, Timestamp, WorkerId};

    fn ready(queue: &str, machine: &str) -> ReadyLane {
        ReadyLane {
            queue: Name::stored(queue),
            lane: Lane {
                machine: Name::stored(machine),
                version: 2,
            },
        }
    }

    #[test]
    fn a_lane_is_warned_of_once_in_each_episode_and_not_at_the_first_check() {
        let mut watch = Watch::default();
        let mut check = |lanes: &[&str]| {
            let found = lanes.iter().map(|one| (ready("q", one), (*one).to_owned()));
            watch.see(found.collect())
        };
        assert!(check(&["a"]).is_empty());
        assert_eq!(check(&["a", "b"]), ["a"]);
        assert_eq!(check(&["a", "b"]), ["b"]);
        assert!(check(&["a", "b"]).is_empty());
        // It was served for a while.
        assert!(check(&["b"]).is_empty());
        assert!(check(&["a", "b"]).is_empty());
        assert_eq!(check(&["a", "b"]), ["a"]);
        assert!(check(&[]).is_empty());
    }

    #[test]
    fn the_second_check_comes_within_ten_seconds() {
        let watch = super::super::settings::Settings::new().watch;
        assert!(watch * 2 <= std::time::Duration::from_secs(10));
    }

    #[test]
    fn a_warning_tells_a_queue_that_is_not_served_from_code_that_is_not_there() {
        let worker = |queue: &str, machine: &str| {
            let ReadyLane { queue, lane } = ready(queue, machine);
            Worker {
                id: WorkerId(1),
                name: Name::stored("w1"),
                queues: vec![queue],
                lanes: vec![lane],
                build: None,
                started_at: Timestamp::default(),
                lease_until: Timestamp::default(),
            }
        };
        let lane = ready("mail", "report");
        assert_eq!(warning(&lane, &[worker("mail", "report")]), None);
        let text = warning(
            &lane,
            &[worker("mail", "other"), worker("default", "report")],
        )
        .unwrap();
        assert!(
            text.contains(".queue(\"mail\", 64)") && text.contains("w1"),
            "{text}"
        );
        for workers in [Vec::new(), vec![worker("mail", "other")]] {
            let text = warning(&lane, &workers).unwrap();
            assert!(
                text.contains("report version 2 wait in queue mail"),
                "{text}"
            );
            assert!(text.contains("`.machine(…)`"), "{text}");
        }
    }
}
