//! The scene of a meeting: a parent that waits for its child, that child, which the actions are about, and three children
//! of its own, of which one is done, one has failed and one is executing. An older run that is done had the same key.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use abide_kernel::conformance::invariants::violations;
use abide_kernel::model::{
    Accepts, Arguments, Cancel, Children, Claim, Claimed, Commit, Committed, Contract, Contracted,
    Join, NewCommand, Outcome, Parameter, Start, WorkerId,
};
use abide_kernel::{Answer, Clock, Op, Store, SweepRequest};
use abide_postgres::tokio_postgres::SimpleQueryMessage;

use crate::common::{
    commit, commits, done, event, going_on, json, key, keyed, name, one, register, request, signal,
    wait_for_event,
};
use crate::matrix::action::Action;
use crate::stepping::Room;

/// The key of the instance that the actions are about.
const ABOUT: &str = "about";
/// That of its parent, and that of its child that has failed.
const PARENT: &str = "parent";
const FAILED: &str = "b-failed";
/// The events that it waits for are of this order.
const ORDER: &str = "7";
/// The tables that a scene is in.
const TABLES: [&str; 7] = [
    "instances",
    "history",
    "signals",
    "events",
    "waiters",
    "waiter_totals",
    "workers",
];
/// Whatever is inserted during a meeting has a number from here on, by which it is known.
const NEW_IDS: std::ops::Range<u64> = 1_000_000..4_000_000;

/// All that a meeting can have changed, in an order that does not depend on how new numbers were given out.
const STATE: [&str; 5] = [
    "select to_jsonb(t)::text from abide.instances t order by key, coalesce((extra::json ->> 'earlier_runs')::int, 0), id",
    "select to_jsonb(t)::text from abide.signals t \
        order by instance_id, message_sequence, key, kind, name, status",
    "select to_jsonb(t)::text from abide.history t order by instance_id, seq",
    "select to_jsonb(t)::text from abide.waiters t order by instance_id, place, value",
    "select event_type || ' ' || sum(total) from abide.waiter_totals group by event_type",
];

/// Where the instance stands that the actions are about, and those around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting {
    stand: Stand,
    /// `true` if the worker that holds it is dead.
    holder_dead: bool,
    /// `true` if its parent has ended, so that it can be swept when it has failed.
    parent_over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stand {
    /// Held by a worker.
    Held,
    /// Waiting for the signal `paid`, or for an event.
    Parked,
    /// Waiting for the last of its children.
    Joining,
    /// Failed.
    Failed,
}

impl Setting {
    /// The setting in which both can happen. An action that cannot happen to the instance itself happens to a child of it.
    pub fn of(pair: [Action; 2]) -> Self {
        let any = |of: &[Action]| pair.iter().any(|action| of.contains(action));
        let stand = if any(&[Action::Park, Action::End, Action::Continue, Action::Reclaim]) {
            Stand::Held
        } else if any(&[Action::ChildEnds]) {
            Stand::Joining
        } else if any(&[Action::Publish, Action::Cancel, Action::CancelParent]) {
            Stand::Parked
        } else if any(&[Action::Restart, Action::Sweep]) {
            Stand::Failed
        } else {
            Stand::Parked
        };
        Self {
            stand,
            holder_dead: any(&[Action::Reclaim]),
            parent_over: stand == Stand::Failed && any(&[Action::Sweep]),
        }
    }
}

/// A scene that is prepared once, saved in a schema of its own, and set up again for each meeting.
pub struct Scene {
    setting: Setting,
    saved: String,
    /// The claim on the instance that the actions are about, when it is held.
    about: Option<Claim>,
    /// The claim on its child that is executing.
    child: Claim,
}

impl Scene {
    /// Prepares a scene and saves it under a number.
    pub async fn prepare(room: &Room, setting: Setting, number: usize) -> Self {
        let clears = TABLES.map(|table| format!("delete from abide.{table}"));
        let clear = format!("{}; {}", clears.join(";"), numbered_from([1, 1, 1]));
        room.eye.batch_execute(&clear).await.unwrap();
        let (about, child) = build(room, setting).await;
        let saved = format!("saved_{number}");
        let tables =
            TABLES.map(|table| format!("create table {saved}.{table} as table abide.{table}"));
        let save = format!("create schema {saved}; {}", tables.join(";"));
        room.eye.batch_execute(&save).await.unwrap();
        let scene = Self {
            setting,
            saved,
            about,
            child,
        };
        assert_eq!(scene.broken(room).await, None, "{setting:?}");
        scene
    }

    /// Puts all rows back to where they were.
    pub async fn set_up(&self, room: &Room) {
        let tables = TABLES.map(|table| {
            let saved = &self.saved;
            format!("delete from abide.{table}; insert into abide.{table} table {saved}.{table}")
        });
        let new = numbered_from([NEW_IDS.start, 2_000_000, 3_000_000]);
        let all = format!("{}; {new}", tables.join(";"));
        room.eye.batch_execute(&all).await.unwrap();
    }

    fn held(&self) -> Claimed {
        going_on(self.about.as_ref().unwrap().again())
    }

    /// The operation that an action is here.
    pub fn op(&self, room: &Room, action: Action) -> Op {
        let about = || key(ABOUT);
        match action {
            Action::Deliver => Op::Deliver(vec![signal(about(), "paid", "1")]),
            Action::Update => Op::Deliver(vec![NewCommand {
                arguments: Arguments::Positional(vec![json("1")]),
                ..NewCommand::update(about(), name("add"))
            }]),
            Action::Park => commits(vec![parks(self.held())]),
            Action::End => commits(vec![done(self.held())]),
            Action::Continue => {
                let again = Outcome::ContinueAsNew {
                    step: name("begin"),
                    state: json("{}"),
                    version: None,
                };
                commits(vec![commit(self.held(), again, false)])
            }
            Action::Cancel => cancel(ABOUT),
            Action::CancelParent => cancel(PARENT),
            Action::Restart => {
                let target = match self.setting.stand {
                    Stand::Failed => ABOUT,
                    _ => FAILED,
                };
                Op::Restart(vec![(key(target).into(), None)])
            }
            Action::ChildEnds => commits(vec![done(going_on(self.child.again()))]),
            Action::Reclaim => Op::Reclaim { limit: 1000 },
            Action::Sweep => Op::Sweep(SweepRequest {
                before: room.clock.now(),
                after: None,
                limit: 1000,
            }),
            Action::Publish => Op::Publish(vec![event("order", ORDER)]),
            Action::Start => Op::Start(vec![keyed("m", ABOUT)]),
        }
    }

    /// The answers, and the state of the database. A reclaim and a sweep pass over what is locked, and come again; so
    /// they do here.
    pub async fn came_of(&self, room: &Room, pair: [Action; 2], answers: &[Answer]) -> String {
        for again in [Action::Reclaim, Action::Sweep] {
            if pair.contains(&again) {
                one(&room.store, self.op(room, again)).await;
            }
        }
        let mut came = String::new();
        for answer in answers {
            writeln!(came, "  answered {}", without_ids(answer)).unwrap();
        }
        for row in room.eye.simple_query(&STATE.join(";")).await.unwrap() {
            if let SimpleQueryMessage::Row(row) = row {
                writeln!(came, "  {}", row.get(0).unwrap()).unwrap();
            }
        }
        with_new_ids_counted(&came)
    }

    /// Violations of invariants here.
    pub async fn broken(&self, room: &Room) -> Option<String> {
        let found = violations(&*room.store).await.unwrap();
        (!found.is_empty()).then(|| found.join("\n"))
    }
}

/// Has instances, messages and events be numbered from there on.
fn numbered_from([instances, signals, events]: [u64; 3]) -> String {
    let of = |table, column, from| {
        format!("setval(pg_get_serial_sequence('abide.{table}', '{column}'), {from}, false)")
    };
    format!(
        "select {}, {}, {}",
        of("instances", "id", instances),
        of("signals", "id", signals),
        of("events", "sequence", events)
    )
}

/// Brings everybody to where they stand; the claims that are held.
async fn build(room: &Room, setting: Setting) -> (Option<Claim>, Claim) {
    let worker = register(&room.store, "w").await;
    let mut older = then_claim(room, Op::Start(vec![keyed("m", ABOUT)]), worker).await;
    one(&room.store, commits(vec![done(older.remove(0))])).await;
    let mut claimed = then_claim(room, Op::Start(vec![keyed("m", PARENT)]), worker).await;
    let spawned = spawn(
        claimed.remove(0),
        vec![with_update(keyed("m", ABOUT))],
        None,
    );
    let mut claimed = then_claim(room, commits(vec![spawned]), worker).await;
    let children = ["a-done", FAILED, "c-executing"].map(|role| keyed("m", role));
    let needed = (setting.stand != Stand::Joining).then_some(2);
    let spawned = spawn(claimed.remove(0), children.into(), needed);
    let mut claimed = then_claim(room, commits(vec![spawned]), worker).await;
    assert_eq!(claimed.len(), 3);
    let child = claimed.remove(2).claim;
    let fails = commit(claimed.remove(1), stop(), false);
    let ends = commits(vec![done(claimed.remove(0)), fails]);
    // A worker of its own, so that it can die alone.
    let holder = register(&room.store, "holder").await;
    let mut about = then_claim(room, ends, holder).await;
    let about = match setting.stand {
        Stand::Joining => {
            assert!(about.is_empty(), "it waits for its last child");
            None
        }
        Stand::Held => Some(about.remove(0).claim),
        Stand::Parked => {
            one(&room.store, commits(vec![parks(about.remove(0))])).await;
            None
        }
        Stand::Failed => {
            let fails = commits(vec![commit(about.remove(0), stop(), false)]);
            let mut parent = then_claim(room, fails, holder).await;
            if setting.parent_over {
                one(&room.store, commits(vec![done(parent.remove(0))])).await;
            }
            None
        }
    };
    if setting.holder_dead {
        // Another process has its name now.
        register(&room.store, "holder").await;
    }
    room.clock.advance(Duration::from_secs(1));
    (about, child)
}

/// Runs an operation, and claims what there is then.
async fn then_claim(room: &Room, op: Op, worker: WorkerId) -> Vec<Claimed> {
    let claims = Op::Claim(request(worker, &["m"], 9));
    let mut answers = room.store.run(Arc::new([op, claims])).await.unwrap();
    match answers.pop() {
        Some(Answer::Claimed(claimed)) => claimed,
        other => panic!("{other:?}"),
    }
}

/// One that takes the update `add`.
fn with_update(start: Start) -> Start {
    let updates = Contract {
        signals: Vec::new(),
        updates: vec![Accepts {
            name: name("add"),
            parameters: Some(vec![Parameter::new("n", "int")]),
        }],
    };
    Start {
        contract: Contracted::Given(updates.into()),
        ..start
    }
}

fn spawn(claimed: Claimed, children: Vec<Start>, at_least: Option<u32>) -> Commit {
    let outcome = Outcome::Spawn {
        children,
        next: name("joined"),
        state: json("{}"),
        join: Join { at_least },
        timeout_ms: None,
    };
    commit(claimed, outcome, false)
}

fn parks(claimed: Claimed) -> Commit {
    let mut parks = wait_for_event(claimed, &["order"], ORDER);
    if let Outcome::Wait(wait) = &mut parks.outcome {
        wait.signals.push(name("paid"));
        wait.timeout_ms = Some(3_600_000);
    }
    parks
}

fn stop() -> Outcome {
    Outcome::Stop {
        reason: "no".to_owned(),
    }
}

fn cancel(target: &str) -> Op {
    Op::Cancel(vec![Cancel {
        target: key(target).into(),
        reason: "no longer wanted".to_owned(),
        children: Children::Cascade,
        force: false,
        source: None,
        claimed_source: None,
    }])
}

/// The text with numbers that were given out during the meeting replaced by the order in which they come first in it.
fn with_new_ids_counted(text: &str) -> String {
    let mut numbers = BTreeMap::new();
    let mut counted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[at..];
        let end = digits.find(|c: char| !c.is_ascii_digit());
        let (number, after) = digits.split_at(end.unwrap_or(digits.len()));
        counted.push_str(&rest[..at]);
        match number.parse() {
            Ok(id) if NEW_IDS.contains(&id) => {
                let next = numbers.len() + 1;
                let new_number = numbers.entry(id).or_insert(next);
                write!(counted, "new{new_number}").unwrap();
            }
            _ => counted.push_str(number),
        }
        rest = after;
    }
    counted + rest
}

/// An answer without what differs from scene to scene. What a reclaim or a sweep counted is left out: each comes again.
fn without_ids(answer: &Answer) -> String {
    match answer {
        Answer::Delivered(each) => format!("{:?}", each[0].as_ref().map(|one| one.verdict)),
        Answer::Published(each) => format!("matched {}", each[0].as_ref().unwrap().matched),
        Answer::Committed(each) => match &each[0] {
            // Where it stands may be another's doing when the same claim is committed twice.
            Committed::Moved(_) | Committed::Repeated(_) => "moved".to_owned(),
            Committed::Kept(..) => "kept".to_owned(),
            other => format!("{other:?}"),
        },
        Answer::Operated(each) => variant(&format!("{:?}", each[0])),
        Answer::Started(each) => variant(&format!("{:?}", each[0].as_ref().unwrap())),
        Answer::Touched { .. } | Answer::Swept { .. } => "done".to_owned(),
        other => format!("{other:?}"),
    }
}

fn variant(text: &str) -> String {
    let end = text.find(['(', ' ']).unwrap_or(text.len());
    text[..end].to_owned()
}
