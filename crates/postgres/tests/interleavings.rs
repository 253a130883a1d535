//! Two transactions on two connections, stepped statement by statement through every order in which they can meet.
//!
//! Each store talks to the server through a gate that lets one statement pass at a time. Whoever is let pass goes on
//! until the server has answered, or until it waits for a lock, and then the next choice is made; all choices are tried.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod common;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide_kernel::model::{
    Cause, Claimed, Delivery, InstanceId, Outcome, Status, Timestamp, Verdict,
};
use abide_kernel::{Answer, ManualClock, Op, Store, Target, WaiterFilter};
use abide_postgres::tokio_postgres::Client;
use abide_postgres::{Listen, Options, Postgres};
use common::{
    claim, commit_all, commits, connect, json, key, keyed, name, register, signal, start,
    start_all, wait, wait_until,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Lets statements pass one at a time, once it is shut.
#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    /// The port from which the server is talked to.
    port: AtomicU16,
    count: Mutex<Count>,
    passes: Notify,
}

/// What stands at a gate, and what has gone through.
#[derive(Default)]
struct Count {
    waits: bool,
    may_pass: bool,
    sent: usize,
    answered: usize,
}

impl Gate {
    fn shut(&self) {
        *self.count.lock().unwrap() = Count::default();
        self.shut.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        self.let_pass();
    }

    fn let_pass(&self) {
        let mut count = self.count.lock().unwrap();
        if count.waits {
            (count.waits, count.may_pass) = (false, true);
            count.sent += 1;
        }
        drop(count);
        self.passes.notify_one();
    }

    /// Waits until what has come may pass.
    async fn pass(&self, is_begin: bool) {
        // BEGIN neither locks nor sees anything.
        if is_begin || !self.shut.load(Ordering::SeqCst) {
            self.count.lock().unwrap().sent += 1;
            return;
        }
        self.count.lock().unwrap().waits = true;
        loop {
            if std::mem::take(&mut self.count.lock().unwrap().may_pass) {
                return;
            }
            self.passes.notified().await;
        }
    }

    /// From the client: a statement is all that comes up to a Sync, or a simple query.
    async fn forth(&self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) {
        let (mut bytes, mut is_started, mut looked_at) = (Vec::new(), false, 0);
        loop {
            while let Some((kind, end)) = message(&bytes, looked_at, !is_started) {
                let text = bytes[looked_at..end].to_vec();
                looked_at = end;
                if is_started && !matches!(kind, b'S' | b'Q' | b'X') {
                    continue;
                }
                if matches!(kind, b'S' | b'Q') && is_started {
                    let is_begin = text.windows(5).any(|word| word == b"begin") && kind == b'Q';
                    self.pass(is_begin).await;
                }
                is_started = true;
                if to.write_all(&bytes[..end]).await.is_err() {
                    return;
                }
                bytes.drain(..end);
                looked_at = 0;
            }
            if !matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
    }

    /// From the server: it is ready again when a statement is answered.
    async fn back(&self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) {
        let mut bytes = Vec::new();
        loop {
            while let Some((kind, end)) = message(&bytes, 0, false) {
                // Before the client has it: who has the answer may shut the gate at once, and counts anew.
                if kind == b'Z' {
                    self.count.lock().unwrap().answered += 1;
                }
                if to.write_all(&bytes[..end]).await.is_err() {
                    return;
                }
                bytes.drain(..end);
            }
            if !matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
    }
}

/// The kind of the message that begins there and where it ends, when it has come; the first of all has no kind.
fn message(bytes: &[u8], at: usize, is_first: bool) -> Option<(u8, usize)> {
    let length_at = at + usize::from(!is_first);
    let length = bytes.get(length_at..length_at + 4)?;
    let end = length_at + u32::from_be_bytes(length.try_into().unwrap()) as usize;
    (bytes.len() >= end).then(|| (bytes[at], end))
}

/// A store behind a gate, and what it is doing.
struct Side {
    store: Arc<Postgres>,
    gate: Arc<Gate>,
    doing: Option<JoinHandle<Vec<Answer>>>,
}

/// Where one side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// A statement waits at the gate, and all before it are answered.
    Ready,
    /// The server waits for a lock.
    Blocked,
    /// The transaction is over.
    Over,
}

impl Side {
    async fn open(url: &str, clock: &Arc<ManualClock>) -> Self {
        let (scheme, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = format!("{scheme}@{}/{database}", proxy.local_addr().unwrap());
        let (gate, server) = (Arc::new(Gate::default()), server.to_owned());
        let kept = gate.clone();
        tokio::spawn(async move {
            let (client, _) = proxy.accept().await.unwrap();
            let server = TcpStream::connect(&server).await.unwrap();
            server.set_nodelay(true).unwrap();
            client.set_nodelay(true).unwrap();
            kept.port
                .store(server.local_addr().unwrap().port(), Ordering::SeqCst);
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(
                async {
                    kept.forth(from_client, to_server).await;
                },
                async {
                    kept.back(from_server, to_client).await;
                }
            );
        });
        let options = Options {
            clock: Some(clock.clone()),
            listen: Listen::Off,
            pool_size: 1,
            migrate: false,
            ..Options::default()
        };
        let store = Arc::new(Postgres::connect(&through, options).await.unwrap());
        let doing = None;
        Self { store, gate, doing }
    }

    /// Begins an operation behind the shut gate.
    fn begin(&mut self, op: Op) {
        self.gate.shut();
        let store = self.store.clone();
        let doing = async move { store.run(Arc::new([op])).await.unwrap() };
        self.doing = Some(tokio::spawn(doing));
    }

    /// Waits until there is nothing to wait for.
    async fn stand(&self, eye: &Client) -> Stand {
        let began = Instant::now();
        loop {
            if self.doing.as_ref().unwrap().is_finished() {
                return Stand::Over;
            }
            let (waits, is_answered) = {
                let count = self.gate.count.lock().unwrap();
                (count.waits, count.sent == count.answered)
            };
            if waits && is_answered {
                return Stand::Ready;
            }
            if !is_answered && began.elapsed() > Duration::from_millis(2) {
                let port = i32::from(self.gate.port.load(Ordering::SeqCst));
                let blocked = "select from pg_stat_activity \
                    where client_port = $1 and wait_event_type = 'Lock'";
                if !eye.query(blocked, &[&port]).await.unwrap().is_empty() {
                    return Stand::Blocked;
                }
            }
            assert!(began.elapsed() < Duration::from_secs(30), "nothing moves");
            tokio::time::sleep(Duration::from_micros(300)).await;
        }
    }

    async fn end(self) -> Answer {
        let answer = self.doing.unwrap().await.unwrap().remove(0);
        // What is told of it afterwards need not be stepped.
        self.gate.open();
        self.store.close().await;
        answer
    }
}

/// A database, and the stores that prepare and look.
struct Room {
    url: String,
    clock: Arc<ManualClock>,
    store: Postgres,
    eye: Client,
}

impl Room {
    async fn new() -> Self {
        let url = abide_pgtest::server().fresh_database();
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(
            1_700_000_000_000_000,
        )));
        let options = Options {
            clock: Some(clock.clone()),
            listen: Listen::Off,
            ..Options::default()
        };
        let store = Postgres::connect(&url, options).await.unwrap();
        let eye = connect(&url).await;
        Self {
            url,
            clock,
            store,
            eye,
        }
    }

    /// Runs two operations side by side. Where both could go on, the script says whether the second one does, and the
    /// first one when it says nothing; all that was chosen is answered.
    async fn meet(&self, ops: [Op; 2], script: &[bool]) -> ([Answer; 2], Vec<bool>, String) {
        let [first, second] = ops;
        let mut sides = [
            Side::open(&self.url, &self.clock).await,
            Side::open(&self.url, &self.clock).await,
        ];
        sides[0].begin(first);
        sides[1].begin(second);
        let (mut chosen, mut trail) = (Vec::new(), String::new());
        loop {
            let stands = [
                sides[0].stand(&self.eye).await,
                sides[1].stand(&self.eye).await,
            ];
            let second = match stands {
                [Stand::Over, Stand::Over] => break,
                [Stand::Ready, Stand::Ready] => {
                    chosen.push(script.get(chosen.len()).copied().unwrap_or(false));
                    chosen[chosen.len() - 1]
                }
                [Stand::Ready, _] => false,
                [_, Stand::Ready] => true,
                // What was waited for is being let go.
                _ => continue,
            };
            trail.push(if second { 'b' } else { 'a' });
            if stands.contains(&Stand::Blocked) {
                trail.push('!');
            }
            sides[usize::from(second)].gate.let_pass();
        }
        let [first, second] = sides;
        ([first.end().await, second.end().await], chosen, trail)
    }
}

/// The script after this one, when all choices are tried from the last one backwards.
fn following(mut chosen: Vec<bool>) -> Option<Vec<bool>> {
    while let Some(last) = chosen.pop() {
        if !last {
            chosen.push(true);
            return Some(chosen);
        }
    }
    None
}

/// The instance as it ended up, and what the next claim is handed.
async fn woken(room: &Room, id: InstanceId, trail: &str) -> (Claimed, usize) {
    let instance = room.store.get(&id.into()).await.unwrap().unwrap();
    assert_eq!(instance.status, Status::Runnable, "{trail}");
    assert_eq!(instance.inbox.signals, 1, "{trail}");
    let pending = room.store.inbox(id).await.unwrap();
    assert_eq!(pending.len(), 1, "{trail}");
    let worker = register(&room.store, "next").await;
    let mut claimed = claim(&room.store, worker, &["m"], 9).await;
    assert_eq!(claimed.len(), 1, "{trail}");
    let claimed = claimed.remove(0);
    assert_eq!(
        (claimed.claim.id(), claimed.step.as_str()),
        (id, "woken"),
        "{trail}"
    );
    let handed = claimed.awaited.len();
    assert!(
        claimed.awaited.iter().all(|one| *one == pending[0]),
        "{trail}"
    );
    (claimed, handed)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_of_deliver_and_park_loses_the_wake_up() {
    // rule 7.1
    for by_key in [false, true] {
        let room = Room::new().await;
        let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
        while let Some(choices) = script {
            let worker = register(&room.store, "w").await;
            let id = start_all(&room.store, vec![keyed("m", "k")]).await[0].id();
            let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
            let parks = commits(vec![wait(held, &["paid"], "woken")]);
            let target: Target = if by_key { key("k").into() } else { id.into() };
            let delivers = Op::Deliver(vec![signal(target, "paid", "1")]);
            let (_, chosen, trail) = room.meet([delivers, parks], &choices).await;

            let (claimed, handed) = woken(&room, id, &trail).await;
            assert_eq!(handed, 1, "{trail}");
            assert!(!claimed.timed_out, "{trail}");
            commit_all(&room.store, vec![common::done(claimed)]).await;
            assert!(trails.insert(trail), "every order is another");
            script = following(chosen);
        }
        met("deliver and park", &trails);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_deliver_and_deadline_one_of_them_wakes() {
    // rule 7.5
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    let (mut by_signal, mut by_deadline) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let parks = wait_until(held, &["paid"], "woken", Some(1000));
        commit_all(&room.store, vec![parks]).await;
        room.clock.advance(Duration::from_secs(1));
        let delivers = Op::Deliver(vec![signal(id, "paid", "1")]);
        let fires = Op::Fire { limit: 10 };
        let (answers, chosen, trail) = room.meet([delivers, fires], &choices).await;

        let Answer::Fired { count: fired, .. } = answers[1] else {
            panic!()
        };
        let (claimed, handed) = woken(&room, id, &trail).await;
        assert_eq!(claimed.timed_out, fired == 1, "{trail}");
        let (cause, expected) = match fired {
            1 => (Cause::Timeout, 0),
            _ => (Cause::Signal, 1),
        };
        assert_eq!((claimed.cause, handed), (cause, expected), "{trail}");
        let history = room.store.history(id, 0, 99).await.unwrap();
        let events = history.iter().flat_map(|row| row.unpack().unwrap());
        let timeouts = events
            .filter(|event| event.what.kind() == "timed_out")
            .count();
        assert_eq!(timeouts, fired, "{trail}");
        by_signal += usize::from(fired == 0);
        by_deadline += fired;
        commit_all(&room.store, vec![common::done(claimed)]).await;
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met_unless_locked("deliver and deadline", &trails);
    assert!(by_signal > 0 && by_deadline > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_publish_and_park_the_event_is_before_the_waiter_or_in_it() {
    // rule 14.6: who looks back as far as the wait began misses nothing.
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    let (mut before, mut within) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let order = trails.len().to_string();
        let mut parks = common::wait_for_event(held, &["paid"], &order);
        if let abide_kernel::model::Outcome::Wait(wait) = &mut parks.outcome {
            wait.events[0].lookback_ms = Some(60_000);
        }
        let publishes = Op::Publish(vec![common::event("paid", &order)]);
        let (answers, chosen, trail) = room.meet([publishes, commits(vec![parks])], &choices).await;
        let [told, _] = answers;
        let matched = common::published(told)[0].matched;
        within += matched;
        before += 1 - matched;

        let (claimed, handed) = woken(&room, id, &trail).await;
        assert_eq!(handed, 1, "{trail}");
        assert_eq!(claimed.cause, Cause::Event, "{trail}");
        commit_all(&room.store, vec![common::done(claimed)]).await;
        let all = WaiterFilter::default();
        let left = room.store.waiters(&all, None, 9).await.unwrap();
        assert_eq!(left.items, [], "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("publish and park", &trails);
    assert!(before > 0 && within > 0, "{before} before, {within} within");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_publish_and_deadline_one_of_them_wakes() {
    // rule 14.5: from where the types are locked on; what comes before touches nothing that the other does.
    const AHEAD: usize = 3;
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(vec![false; AHEAD]), BTreeSet::new());
    let (mut by_event, mut by_deadline) = (0, 0);
    while let Some(choices) = script {
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![start("m")]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let order = trails.len().to_string();
        let parks = common::wait_for_event(held, &["paid"], &order);
        commit_all(&room.store, vec![parks]).await;
        room.clock.advance(Duration::from_secs(1));
        let publishes = Op::Publish(vec![common::event("paid", &order)]);
        let fires = Op::Fire { limit: 10 };
        let (answers, chosen, trail) = room.meet([publishes, fires], &choices).await;
        let [told, fired] = answers;
        let matched = common::published(told)[0].matched as usize;
        let Answer::Fired { count: fired, .. } = fired else {
            panic!()
        };
        assert_eq!(matched + fired, 1, "{trail}");
        by_event += matched;
        by_deadline += fired;
        let worker = register(&room.store, "next").await;
        let claimed = claim(&room.store, worker, &["m"], 9).await.remove(0);
        assert_eq!(claimed.claim.id(), id, "{trail}");
        assert_eq!(claimed.awaited.len(), matched, "{trail}");
        assert_eq!(claimed.timed_out, fired == 1, "{trail}");
        commit_all(&room.store, vec![common::done(claimed)]).await;
        let all = WaiterFilter::default();
        let left = room.store.waiters(&all, None, 9).await.unwrap();
        assert_eq!(left.items, [], "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen).filter(|script| script.len() > AHEAD);
    }
    met_unless_locked("publish and deadline", &trails);
    assert!(by_event > 0 && by_deadline > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_hold_and_start_the_signal_is_in_the_inbox() {
    // rule 7.8
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    while let Some(choices) = script {
        let text = format!("k{}", trails.len());
        let hold = Delivery {
            hold_for: Some(Duration::from_secs(60)),
            ..signal(key(&text), "paid", "1")
        };
        let ops = [Op::Deliver(vec![hold]), Op::Start(vec![keyed("m", &text)])];
        let (_, chosen, trail) = room.meet(ops, &choices).await;
        let instance = room.store.get(&key(&text).into()).await.unwrap().unwrap();
        assert_eq!(instance.inbox.signals, 1, "{trail}");
        let pending = room.store.inbox(instance.id).await.unwrap();
        assert_eq!(pending.len(), 1, "{trail}");
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("hold and start", &trails);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_every_order_of_deliver_and_continue_the_newest_run_has_the_signal() {
    // rules 2.4 and 2.5
    let room = Room::new().await;
    let (mut script, mut trails) = (Some(Vec::new()), BTreeSet::new());
    while let Some(choices) = script {
        let text = format!("k{}", trails.len());
        let worker = register(&room.store, "w").await;
        let id = start_all(&room.store, vec![keyed("m", &text)]).await[0].id();
        let held = claim(&room.store, worker, &["m"], 1).await.remove(0);
        let again = Outcome::ContinueAsNew {
            step: name("begin"),
            state: json("{}"),
            version: None,
        };
        let ops = [
            Op::Deliver(vec![signal(key(&text), "paid", "1")]),
            commits(vec![common::commit(held, again, false)]),
        ];
        let (answers, chosen, trail) = room.meet(ops, &choices).await;
        let Answer::Delivered(told) = &answers[0] else {
            panic!()
        };
        let told = told[0].as_ref().unwrap();
        assert_eq!(told.verdict, Verdict::Received, "{trail}");
        let newest = room.store.get(&key(&text).into()).await.unwrap().unwrap();
        assert_eq!(newest.run.first, Some(id), "{trail}");
        assert_eq!(newest.inbox.signals, 1, "{trail}");
        let pending = room.store.inbox(newest.id).await.unwrap();
        assert_eq!(pending.len(), 1, "{trail}");
        let claimed = claim(&room.store, worker, &["m"], 9).await;
        commit_all(&room.store, claimed.into_iter().map(common::done).collect()).await;
        assert!(trails.insert(trail), "every order is another");
        script = following(chosen);
    }
    met("deliver and continue", &trails);
}

/// Looks whether each was first at its lock in some order, and kept the other waiting there.
fn met(who: &str, trails: &BTreeSet<String>) {
    assert!(has_gone_on_alone("a!", who, trails));
    assert!(has_gone_on_alone("b!", who, trails));
}

/// The same where the second passes over what the first has locked instead of waiting for it (rule 6.8).
fn met_unless_locked(who: &str, trails: &BTreeSet<String>) {
    assert!(!has_gone_on_alone("a!", who, trails), "a timer has waited");
    assert!(has_gone_on_alone("b!", who, trails));
}

/// Whether in some order one of the two took a step while the other waited for a lock.
fn has_gone_on_alone(step: &str, who: &str, trails: &BTreeSet<String>) -> bool {
    println!("{} orders of {who}", trails.len());
    trails.iter().any(|trail| trail.contains(step))
}
