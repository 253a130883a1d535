//! Helpers that the tests of this store share.

pub mod audit;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Claim, Claimed, Commit, Committed, InstanceId, Json, Lane, Name, Outcome, Start, Started,
    Timestamp, WorkerId,
};
use abide_kernel::{Answer, ClaimRequest, ManualClock, NewWorker, Op, Store};
use abide_sqlite::rusqlite::Connection;
use abide_sqlite::{Options, Sqlite};
use tempfile::TempDir;

/// A temporary directory with a database in it.
pub struct Database {
    dir: TempDir,
}

impl Database {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("abide.db")
    }

    pub fn open(&self) -> Arc<Sqlite> {
        Sqlite::open(self.path(), Options::default()).unwrap()
    }

    /// With a clock that the test moves.
    pub fn clocked(&self) -> (Arc<Sqlite>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
        let options = Options {
            clock: Some(clock.clone()),
            ..Options::default()
        };
        (Sqlite::open(self.path(), options).unwrap(), clock)
    }

    /// A connection of another program.
    pub fn connect(&self) -> Connection {
        let conn = Connection::open(self.path()).unwrap();
        conn.busy_timeout(Duration::from_secs(10)).unwrap();
        conn
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn plain() -> Start {
    Start::of(name("m"), Json::null())
}

pub fn start(count: usize) -> Op {
    Op::Start(vec![plain(); count])
}

/// A batch that is refused as a whole.
pub fn too_many() -> Op {
    start(100_001)
}

pub async fn run(store: &dyn Store, op: Op) -> Answer {
    store.run([op].into()).await.unwrap().remove(0)
}

pub async fn start_one(store: &dyn Store) -> InstanceId {
    match run(store, start(1)).await {
        Answer::Started(started) => started[0].as_ref().map(|one: &Started| one.id()).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub async fn worker(store: &dyn Store, worker_name: &str, lease: Duration) -> WorkerId {
    let worker = NewWorker {
        name: name(worker_name),
        lease,
        queues: vec![name("default")],
        lanes: vec![lane()],
        build: None,
    };
    match run(store, Op::Register(worker)).await {
        Answer::Registered(worker) => worker.id,
        other => panic!("{other:?}"),
    }
}

pub fn lane() -> Lane {
    Lane {
        machine: name("m"),
        version: 1,
    }
}

pub fn claim(worker: WorkerId, limit: usize) -> Op {
    Op::Claim(ClaimRequest {
        worker,
        queue: name("default"),
        lanes: vec![lane()],
        limit,
        lease: None,
    })
}

pub async fn claimed(store: &dyn Store, worker: WorkerId, limit: usize) -> Vec<Claimed> {
    match run(store, claim(worker, limit)).await {
        Answer::Claimed(claimed) => claimed,
        other => panic!("{other:?}"),
    }
}

fn commit_of(claim: Claim, outcome: Outcome) -> Commit {
    Commit {
        claim,
        outcome,
        keep: false,
        took: Duration::ZERO,
        error: None,
    }
}

pub fn commits(commits: Vec<Commit>) -> Op {
    Op::Commit {
        commits,
        serves: Vec::new(),
    }
}

pub fn done(claimed: Vec<Claimed>) -> Op {
    let result = Json::null();
    let outcome = Outcome::Done { result };
    let done = |one: Claimed| commit_of(one.claim, outcome.clone());
    commits(claimed.into_iter().map(done).collect())
}

pub async fn committed(store: &dyn Store, commit: Commit) -> Committed {
    match run(store, commits(vec![commit])).await {
        Answer::Committed(mut all) if all.len() == 1 => all.remove(0),
        other => panic!("{other:?}"),
    }
}

/// Commits the outcome of a claim, which is not kept.
pub async fn commit(store: &dyn Store, claim: Claim, outcome: Outcome) -> Committed {
    committed(store, commit_of(claim, outcome)).await
}

/// Number of instances in a file.
pub fn count(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("select count(*) from abide_instances", [], |row| row.get(0))
        .unwrap()
}
