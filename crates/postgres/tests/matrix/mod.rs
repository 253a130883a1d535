//! Every pair of actions on related rows, on two connections, stepped statement by statement: the first is stopped before
//! each of its statements in turn, the second runs to its end or to where it waits for the first, and then the first goes
//! on. Afterwards no invariant is broken, both are answered, the state and the answers are those of one of the two serial
//! orders, and the server has met no deadlock.
//!
//! `ABIDE_MATRIX=cancel,restart` runs that pair alone.

mod action;
mod scene;

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::stepping::{Room, Side, Stopped};
use abide_kernel::Store as _;
use abide_pgtest::Server;
use action::{ACTIONS, Action};
use scene::{Scene, Setting};

/// No transaction of these has so many statements.
const STATEMENTS_MAX: usize = 80;
/// Pairs are stepped side by side, each in a database of its own.
const LANES: usize = 3;
/// Durability is not tested here, so commits need not wait for the disk; and a deadlock is to be found soon.
const SETTINGS: [(&str, &str); 4] = [
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("deadlock_timeout", "100ms"),
    ("autovacuum_naptime", "5s"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_of_actions_comes_to_what_one_after_the_other_comes_to() {
    // rules 1.1, 1.3, 2.2, 2.4, 2.5, 7.1, 10.2, 11.1, 11.2, 14.6 and 16.2
    let selected = std::env::var("ABIDE_MATRIX").unwrap_or_default();
    let is_selected = |pair: &[Action; 2]| match selected.split_once(',') {
        None => true,
        Some((one, two)) => {
            let names = pair.map(Action::name);
            names == [one, two] || names == [two, one]
        }
    };
    let all = ACTIONS.iter().enumerate();
    let all = all.flat_map(|(at, one)| ACTIONS[at..].iter().map(|two| [*one, *two]));
    let pairs: Vec<[Action; 2]> = all.filter(is_selected).collect();
    assert!(!pairs.is_empty(), "there is no pair {selected:?}");
    let is_whole = selected.is_empty();
    let seen = step_through(pairs).await;
    assert!(seen.waited > 0 || !is_whole, "nothing ever waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cascade_reaches_the_run_that_a_child_goes_on_as_meanwhile() {
    // rules 2.4 and 11.1. The bug: a cancelled parent's children were looked up, one of them continued as new before it
    // was locked, and its new run, which had not been looked up, ran on.
    step_through(vec![[Action::CancelParent, Action::Continue]]).await;
}

/// Steps through these pairs, several side by side.
async fn step_through(pairs: Vec<[Action; 2]>) -> Seen {
    let count = pairs.len();
    let server = Server::private(&SETTINGS);
    let began = Instant::now();
    let pairs = Arc::new(Mutex::new(pairs));
    let lanes: Vec<_> = (0..LANES.min(count))
        .map(|_| tokio::spawn(lane(server.fresh_database(), pairs.clone())))
        .collect();
    let mut seen = Seen::default();
    for lane in lanes {
        seen.add(lane.await.unwrap());
    }
    println!(
        "{count} pairs, {} meetings, of which {} waited for a lock, {} conflicts run again, {} deadlocks, in {:.1?}",
        seen.meetings,
        seen.waited,
        seen.conflicts,
        seen.deadlocks,
        began.elapsed()
    );
    if seen.deadlocks > 0 {
        seen.problems.push(format!("{} deadlocks", seen.deadlocks));
    }
    assert!(seen.problems.is_empty(), "{}", seen.problems.join("\n"));
    seen
}

/// Observations during the meetings.
#[derive(Default)]
struct Seen {
    meetings: usize,
    /// In how many of them one waited for the other.
    waited: usize,
    conflicts: usize,
    deadlocks: i64,
    problems: Vec<String>,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.meetings += other.meetings;
        self.waited += other.waited;
        self.conflicts += other.conflicts;
        self.deadlocks += other.deadlocks;
        self.problems.extend(other.problems);
    }
}

/// Steps through pairs in one database until there are none left.
async fn lane(url: String, pairs: Arc<Mutex<Vec<[Action; 2]>>>) -> Seen {
    let room = Room::on(url).await;
    let sides = [
        Side::open(&room.url, &room.clock).await,
        Side::open(&room.url, &room.clock).await,
    ];
    let mut matrix = Matrix {
        room,
        sides,
        scenes: BTreeMap::new(),
        sound: BTreeSet::new(),
        seen: Seen::default(),
    };
    loop {
        let Some(pair) = pairs.lock().unwrap().pop() else {
            break;
        };
        matrix.meet(pair).await;
    }
    let Matrix {
        room,
        sides,
        mut seen,
        ..
    } = matrix;
    for side in sides {
        side.close().await;
    }
    seen.deadlocks = deadlocks(&room).await;
    seen
}

/// Number of deadlocks that the server has resolved in this database. A backend counts at the latest when it ends.
async fn deadlocks(room: &Room) -> i64 {
    let others = "select from pg_stat_activity where datname = current_database() \
        and application_name = 'abide' and pid <> pg_backend_pid()";
    let counted = "select deadlocks from pg_stat_database where datname = current_database()";
    room.store.close().await;
    while !room.eye.query(others, &[]).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    room.eye.query_one(counted, &[]).await.unwrap().get(0)
}

/// The meetings in one database.
struct Matrix {
    room: Room,
    sides: [Side; 2],
    scenes: BTreeMap<Setting, Scene>,
    /// States that were found to break no invariant.
    sound: BTreeSet<String>,
    seen: Seen,
}

impl Matrix {
    /// Has two actions meet, with each stopped before each of its statements in turn.
    async fn meet(&mut self, pair: [Action; 2]) {
        let setting = Setting::of(pair);
        if !self.scenes.contains_key(&setting) {
            let scene = Scene::prepare(&self.room, setting, self.scenes.len()).await;
            self.scenes.insert(setting, scene);
        }
        let serial = BTreeSet::from([
            self.serial(setting, pair, [0, 1]).await,
            self.serial(setting, pair, [1, 0]).await,
        ]);
        self.stop(setting, pair, [0, 1], &serial).await;
        if pair[0] != pair[1] {
            self.stop(setting, pair, [1, 0], &serial).await;
        }
    }

    /// Results of two actions one after the other, in that order.
    async fn serial(&mut self, setting: Setting, pair: [Action; 2], order: [usize; 2]) -> String {
        let (room, scene) = (&self.room, &self.scenes[&setting]);
        scene.set_up(room).await;
        let mut answers = [None, None];
        for at in order {
            answers[at] = Some(common::one(&room.store, scene.op(room, pair[at])).await);
        }
        let answers = answers.map(Option::unwrap);
        let came = scene.came_of(room, pair, &answers).await;
        let broken = scene.broken(room).await;
        assert_eq!(broken, None, "{pair:?} in the order {order:?}");
        self.sound.insert(came.clone());
        came
    }

    /// Has two actions meet, with the one that is first in that order stopped before each of its statements in turn.
    async fn stop(
        &mut self,
        setting: Setting,
        pair: [Action; 2],
        order: [usize; 2],
        serial: &BTreeSet<String>,
    ) {
        let (room, scene) = (&self.room, &self.scenes[&setting]);
        let [one, two] = order.map(|at| pair[at].name());
        for at in 0..STATEMENTS_MAX {
            scene.set_up(room).await;
            let ops = order.map(|at| scene.op(room, pair[at]));
            let Stopped {
                answers,
                conflicts,
                statements,
                trail,
            } = room.stop(&mut self.sides, ops, at).await;
            self.seen.meetings += 1;
            self.seen.waited += usize::from(trail.contains('!'));
            self.seen.conflicts += conflicts;
            let here = format!("{one} stopped before statement {at}, and {two} ({trail})");
            let problems = &mut self.seen.problems;
            match answers {
                [Ok(first), Ok(second)] => {
                    let mut answers = [first, second];
                    answers.swap(0, order[0]);
                    let came = scene.came_of(room, pair, &answers).await;
                    if !serial.contains(&came) {
                        problems.push(format!("{here}\n{}", differences(&came, serial)));
                    }
                    // The same state is as sound as it was before.
                    if self.sound.insert(came)
                        && let Some(broken) = scene.broken(room).await
                    {
                        problems.push(format!("{here}: {broken}"));
                    }
                }
                answers => problems.push(format!("{here}: {answers:?}")),
            }
            if at + 1 >= statements {
                return;
            }
        }
        panic!("{pair:?}: more statements than {STATEMENTS_MAX}");
    }
}

/// The lines in which a state differs from each of the states that it may be.
fn differences(came: &str, serial: &BTreeSet<String>) -> String {
    let lines = |of: &str| -> BTreeSet<String> { of.lines().map(str::to_owned).collect() };
    let came = lines(came);
    let mut text = String::new();
    for expected in serial {
        let expected = lines(expected);
        text += "  differs from one after the other:\n";
        for line in came.difference(&expected) {
            text += &format!("  + {line}\n");
        }
        for line in expected.difference(&came) {
            text += &format!("  - {line}\n");
        }
    }
    text
}
