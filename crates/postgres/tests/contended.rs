//! Many callers at the same few keys: they wait for each other in one order, and never for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{
    self, claim, commit, commit_all, commits, connect, database, deliver, done, json, key, keyed,
    name, open, register, request, signal, start_all, until_blocked, wait,
};
use abide_kernel::model::{
    Cancel, Children, Claimed, Join, NewCommand, Outcome, Start, Status, UniqueKey, Verdict,
    WorkerId,
};
use abide_kernel::{Answer, Error, Op, Store, Target};
use abide_pgtest::{Server, psql};
use abide_postgres::Postgres;

/// Number of callers, number of keys, and duration.
const CALLERS: u64 = 16;
const KEYS: u64 = 5;
const FOR: Duration = Duration::from_secs(6);
/// Longest time of one call, on however busy a machine. A deadlock alone takes a second to be found.
const CALL: Duration = Duration::from_secs(8);

/// Numbers that look random and are the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }

    fn key(&mut self) -> String {
        format!("k{}", self.below(KEYS))
    }

    fn target(&mut self) -> Target {
        match self.below(3) {
            0 => Target::Id(abide_kernel::model::InstanceId(1 + self.below(400) as i64)),
            _ => Target::Key(key(&self.key())),
        }
    }

    /// A start, in a partition or in none.
    fn start(&mut self) -> Start {
        let partition = match self.below(2) {
            0 => None,
            _ => Some(key(&format!("p{}", self.below(3)))),
        };
        Start {
            partition_key: partition,
            ..keyed("m", &self.key())
        }
    }

    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..1 + self.below(4)).map(|_| one(self)).collect()
    }

    fn delivery(&mut self) -> NewCommand {
        match self.below(3) {
            0 => NewCommand {
                hold_for: Some(Duration::from_secs(60)),
                ..signal(key(&self.key()), "go", "1")
            },
            1 => {
                let start = self.start();
                NewCommand {
                    start: Some(Box::new(start.clone())),
                    ..signal(start.key.unwrap(), "go", "1")
                }
            }
            _ => signal(self.target(), "go", "1"),
        }
    }

    fn outcome(&mut self) -> Outcome {
        match self.below(6) {
            0 => Outcome::Done {
                result: json("true"),
            },
            1 => Outcome::Stop {
                reason: "no".to_owned(),
            },
            2 => Outcome::ContinueAsNew {
                step: name("begin"),
                state: json("{}"),
                version: None,
            },
            3 => Outcome::Spawn {
                children: self.several(Self::start),
                next: name("joined"),
                state: json("{}"),
                join: Join::default(),
                timeout_ms: Some(50),
            },
            _ => Outcome::Next {
                step: name("more"),
                state: json("{}"),
                delay_ms: 0,
            },
        }
    }

    /// Commits a claim: half of the outcomes wait for a signal.
    fn commit(&mut self, claimed: Claimed) -> abide_kernel::model::Commit {
        match self.below(2) {
            0 => wait(claimed, &["go"], "woken"),
            _ => commit(claimed, self.outcome(), false),
        }
    }

    fn op(&mut self) -> Op {
        match self.below(6) {
            0 => Op::Start(self.several(Self::start)),
            1 | 2 => Op::Deliver(self.several(Self::delivery)),
            3 => Op::Cancel(self.several(|random| Cancel {
                target: random.target(),
                reason: "enough".to_owned(),
                children: Children::Cascade,
                force: true,
                source: None,
                claimed_source: None,
            })),
            4 => Op::Restart(self.several(|random| (random.target(), None))),
            _ => Op::Fire { limit: 20 },
        }
    }
}

/// Calls as long as it may; the longest that a call took, and how many met a conflict.
async fn call(store: Arc<Postgres>, worker: WorkerId, seed: u64) -> (Duration, usize, usize) {
    let mut random = Random(seed);
    let until = Instant::now() + FOR;
    let (mut longest, mut calls, mut conflicts) = (Duration::ZERO, 0, 0);
    while Instant::now() < until {
        let op = match random.below(3) {
            0 => {
                let claimed = claim(&store, worker, &["m"], 4).await;
                commits(claimed.into_iter().map(|one| random.commit(one)).collect())
            }
            _ => random.op(),
        };
        let begun = Instant::now();
        match store.run(Arc::new([op])).await {
            Ok(_) => {}
            Err(Error::Conflict(_)) => conflicts += 1,
            Err(error) => panic!("{error:?}"),
        }
        calls += 1;
        longest = longest.max(begun.elapsed());
    }
    (longest, calls, conflicts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_at_the_same_few_keys_never_deadlock() {
    // rule 6.8. The bug: 16 callers that held, started and signalled the same few keys met 7 deadlocks in 14 s, each
    // of which took the server a second to find.
    let server = Server::private(&[
        ("logging_collector", "on"),
        ("log_directory", "log"),
        ("log_filename", "server.log"),
    ]);
    let url = server.fresh_database();
    let stores = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let mut callers = Vec::new();
    for seed in 0..CALLERS {
        let store = stores[usize::try_from(seed % 2).unwrap()].clone();
        let worker = register(&store, &format!("w{seed}")).await;
        callers.push(tokio::spawn(call(store, worker, seed)));
    }
    let (mut longest, mut calls, mut conflicts) = (Duration::ZERO, 0, 0);
    for caller in callers {
        let (took, called, met) = caller.await.unwrap();
        longest = longest.max(took);
        calls += called;
        conflicts += met;
    }
    for store in stores {
        store.close().await;
    }
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    println!("{calls} calls, {conflicts} conflicts, the longest took {longest:?}");
    // What waited for what is in the log.
    let log = "select substring(log from position('deadlock detected' in log) for 4000) \
        from pg_read_file('log/server.log') as log";
    assert_eq!(psql(&url, deadlocks), "0", "{}", psql(&url, log));
    assert!(longest < CALL, "{longest:?}");
    assert!(conflicts * 20 <= calls, "{conflicts} of {calls}");
}

/// Starts one under a key and has it end.
async fn end_one(
    store: &Postgres,
    worker: WorkerId,
    text: &str,
) -> abide_kernel::model::InstanceId {
    let one = start_all(store, vec![keyed("ends", text)]).await[0].id();
    let claimed = claim(store, worker, &["ends"], 1).await.remove(0);
    assert_eq!(claimed.claim.id(), one);
    commit_all(store, vec![done(claimed)]).await;
    one
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_whose_id_is_drawn_long_before_it_is_there_is_the_newest_of_its_key() {
    // rule 2.5. The bug: a batch drew the ids of all its rows and then inserted them one by one. Meanwhile another
    // server started an instance under the last key, with a higher id, and it ended. So the key stood for one that had
    // ended, and the one that lived could not be reached by it.
    let url = database();
    let store = Arc::new(open(&format!("{url}?lock_timeout_ms=20000")).await);
    let worker = register(&store, "w").await;
    let ended_before = end_one(&store, worker, "z").await;

    // Somebody is about to take the first key of the batch, and has drawn no lock for it.
    let mut foreign = connect(&url).await;
    let foreign = foreign.transaction().await.unwrap();
    let take = "insert into abide.instances (version, key_scope, unique_scope, status, priority, behind, queue, machine, \
        created_at, updated_at, kind, cause, history, step, first_step, state, key) \
        select version, (select key_scope from abide.instances limit 1), unique_scope, 2, priority, behind, queue, machine, \
        created_at, updated_at, kind, cause, history, step, first_step, state, 'a:0' from abide.instances limit 1";
    assert_eq!(foreign.execute(take, &[]).await.unwrap(), 1);
    let batch = tokio::spawn({
        let store = store.clone();
        let keys = (0..600).map(|n| format!("a:{n}"));
        let starts = keys.chain(["z".to_owned()]).map(|text| keyed("m", &text));
        let starts: Vec<Start> = starts.collect();
        async move { start_all(&store, starts).await }
    });
    until_blocked(&connect(&url).await, 1).await;
    let overtaking = end_one(&store, worker, "z").await;
    foreign.rollback().await.unwrap();

    let started = batch.await.unwrap();
    let lives = started.last().unwrap().id();
    assert!(ended_before < overtaking && overtaking < lives);
    let found = store.get(&key("z").into()).await.unwrap().unwrap();
    assert_eq!((found.id, found.status), (lives, Status::Runnable));
    let sent = deliver(&store, vec![signal(key("z"), "go", "1")]).await;
    assert_eq!(sent[0].verdict, Verdict::Received);
    let again = start_all(&store, vec![keyed("m", "z")]).await;
    assert_eq!(again[0].id(), lives);
    // Nothing is left of the rows that were taken out again.
    let rows = psql(
        &url,
        "select count(*), count(distinct id) from abide.instances",
    );
    assert_eq!(rows, "603|603");
    let Answer::Claimed(claimed) =
        common::one(&store, Op::Claim(request(worker, &["m"], 1000))).await
    else {
        panic!()
    };
    assert_eq!(claimed.len(), 601);
}

#[tokio::test]
async fn the_doctor_finds_one_that_holds_a_key_which_stands_for_another() {
    // rules 2.5, 11.3
    let url = abide_pgtest::server().fresh_database();
    let store = open(&url).await;
    let of = |text: &str| keyed("m", text);
    let ids = start_all(&store, vec![of("a"), of("b"), of("c")]).await;
    let examine = async || {
        let op = Op::Examine {
            after: abide_kernel::model::InstanceId(0),
            limit: 100,
        };
        let Answer::Examined { findings, .. } = common::one(&store, op).await else {
            panic!()
        };
        findings
    };
    assert_eq!(examine().await, []);
    psql(&url, "drop index abide.instances_key_taken");
    psql(&url, "update abide.instances set key = 'a' where key = 'b'");
    let findings = examine().await;
    // Of two that hold it the key stands for one, and the other is hidden.
    let both = |id| ids[..2].iter().any(|one| one.id() == id);
    assert!(!findings.is_empty(), "it was not found");
    assert!(
        findings.iter().all(|one| both(one.instance)),
        "{findings:?}"
    );
}

#[tokio::test]
async fn of_two_rows_of_a_batch_that_want_one_key_the_first_wins_whatever_their_order() {
    // rule 2.3
    let url = database();
    let store = open(&url).await;
    let unique = |text: &str, unique: &str| Start {
        unique_key: Some(UniqueKey::new(unique.as_bytes()).unwrap()),
        ..keyed("m", text)
    };
    let batch = vec![
        unique("b", "2"),
        unique("a", "9"),
        unique("b", "1"),
        unique("a", "8"),
    ];
    let started = start_all(&store, batch).await;
    assert_eq!(started[2].id(), started[0].id());
    assert_eq!(started[3].id(), started[1].id());
    // The unique key of one that was dropped is free.
    let others = start_all(&store, vec![unique("c", "1"), unique("d", "9")]).await;
    assert_eq!(others[1].id(), started[1].id());
    let mut all = BTreeMap::new();
    for one in [&started[0], &started[1], &others[0]] {
        all.insert(one.id(), ());
    }
    assert_eq!(all.len(), 3);
}
