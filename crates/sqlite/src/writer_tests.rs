//! Failures of the writing thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use abide_core::model::{Json, Limits, Name, Start, Started};
use abide_kernel::{Answer, Bus, Error, Op, Result, SystemClock};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::open;
use crate::options::Options;
use crate::poison::Poison;
use crate::writer::{Request, Run, Writer};

/// A writer whose connection a test has had its hands on.
fn writer(path: &Path, tamper: impl FnOnce(&Connection)) -> (Writer, mpsc::Sender<Request>) {
    let conn = open::writer(path, &Options::default()).unwrap();
    tamper(&conn);
    let (sender, requests) = mpsc::channel(64);
    let clock = Arc::new(SystemClock::default());
    let commits = Arc::new(AtomicU64::new(0));
    let writer = Writer::new(
        conn,
        requests,
        clock,
        Limits::default(),
        Bus::new(),
        commits,
        Poison::default(),
    );
    (writer.unwrap(), sender)
}

type Answered = oneshot::Receiver<Result<Vec<Answer>>>;

fn send(sender: &mpsc::Sender<Request>, ops: Vec<Op>) -> Answered {
    let (answer, answered) = oneshot::channel();
    let run = Request::Run(Run {
        ops: ops.into(),
        answer,
    });
    assert!(sender.try_send(run).is_ok());
    answered
}

fn start(count: usize, state_bytes: usize) -> Op {
    let state = Json::of(&"x".repeat(state_bytes)).unwrap();
    Op::Start(vec![Start::of(Name::stored("m"), state); count])
}

fn count(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("select count(*) from abide_instances", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn a_full_disk_is_passing_and_touches_no_neighbour() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abide.db");
    let (writer, sender) = writer(&path, |conn| {
        let pages: i64 = conn
            .query_row("pragma page_count", [], |row| row.get(0))
            .unwrap();
        conn.query_row(
            &format!("pragma max_page_count = {}", pages + 20),
            [],
            |_| Ok(()),
        )
        .unwrap();
    });
    let before = send(&sender, vec![start(1, 10)]);
    let large = send(&sender, vec![start(1, 10), start(100, 10_000)]);
    let after = send(&sender, vec![start(1, 10)]);
    drop(sender);
    writer.serve();
    for fine in [before, after] {
        let answers = fine.blocking_recv().unwrap().unwrap();
        assert!(
            matches!(&answers[..], [Answer::Started(all)] if matches!(all[..], [Ok(Started::New(_))]))
        );
    }
    let full = large.blocking_recv().unwrap();
    assert!(matches!(full, Err(Error::Unavailable(_))), "{full:?}");
    assert_eq!(count(&path), 2);
}

#[test]
fn a_poisoned_writer_writes_nothing_and_keeps_the_log() {
    // rule 1.1
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abide.db");
    let (mut writer, sender) = writer(&path, |_| {});
    writer.poison(Some("the disk is gone".into()));
    let answered = send(&sender, vec![start(1, 10)]);
    drop(sender);
    writer.serve();
    let answer = answered.blocking_recv().unwrap();
    assert!(
        matches!(&answer, Err(Error::Broken(text)) if text.contains("disk is gone")),
        "{answer:?}"
    );
    assert!(dir.path().join("abide.db-wal").metadata().unwrap().len() > 0);
    assert_eq!(count(&path), 0);
}

#[test]
fn what_was_waiting_is_done_before_it_closes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abide.db");
    let (writer, sender) = writer(&path, |_| {});
    let first = send(&sender, vec![start(1, 10)]);
    assert!(sender.try_send(Request::Close).is_ok());
    let second = send(&sender, vec![start(1, 10)]);
    let serving = thread::spawn(move || writer.serve());
    assert!(first.blocking_recv().unwrap().is_ok() && second.blocking_recv().unwrap().is_ok());
    serving.join().unwrap();
    assert!(sender.is_closed());
    assert_eq!(count(&path), 2);
}

#[test]
fn who_has_gone_away_gets_nothing_done() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("abide.db");
    let (writer, sender) = writer(&path, |_| {});
    drop(send(&sender, vec![start(1, 10)]));
    drop(sender);
    writer.serve();
    assert_eq!(count(&path), 0);
}
