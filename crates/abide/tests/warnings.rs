//! Warnings of an engine and of a call: work that no worker can run, and a second process on one file.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use abide::engine::Engine;
use abide::model::Limits;
use abide::time::{Timestamp, days, millis, secs};
use abide::{Abide, BoxError, Job};
use abide_kernel::ManualClock;
use abide_kernel::memory::Memory;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

const KNOWN: Job<u32, u32> = Job::new("known");
const FORGOTTEN: Job<u32, u32> = Job::new("forgotten").queue("mail");

/// The warnings of this thread, on which all tasks of these tests run.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        (log.clone(), tracing::subscriber::set_default(log))
    }

    /// The number of warnings that contain that text.
    fn count(&self, text: &str) -> usize {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(text)).count()
    }
}

/// The message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An engine that has code for one job, in a time that the test moves.
async fn engine() -> Result<(ManualClock, Abide, Engine), BoxError> {
    let clock = ManualClock::at(Timestamp::from_micros(0));
    let store = Memory::new(Arc::new(clock.clone()), Limits::default());
    let abide = Abide::options().on(Arc::new(store));
    let engine = abide.engine().job(KNOWN, |n| async move { Ok(n) });
    // Time passes in leaps, which no lease is to end in.
    let engine = engine.lease(days(36_500)).start().await?;
    Ok((clock, abide, engine))
}

/// Lets ten seconds pass, and the tasks that check then run.
async fn pass_time(clock: &ManualClock) {
    clock.advance(secs(10));
    tokio::time::sleep(millis(1)).await;
}

/// Lets time pass until something was warned of.
async fn until_warned(clock: &ManualClock, log: &Log, text: &str) {
    for _ in 0..1_000 {
        pass_time(clock).await;
        if log.count(text) > 0 {
            return;
        }
    }
    panic!("{text:?} is not logged: {:?}", log.0.lock().unwrap());
}

#[tokio::test]
async fn work_that_no_worker_can_run_is_warned_of_once() -> Result<(), BoxError> {
    let (log, _guard) = Log::begin();
    let (clock, abide, engine) = engine().await?;
    abide.start(KNOWN, 1).await?;
    abide.start(FORGOTTEN, 1).await?;
    abide.start(FORGOTTEN, 2).await?;
    let text = "instances of machine forgotten version 1 wait in queue mail, and no live worker has code for them";
    until_warned(&clock, &log, text).await;
    // The code is there, and the queue is not served.
    abide.start(KNOWN, 2).queue("other").await?;
    let queue = "instances of machine known version 1 wait in queue other";
    until_warned(&clock, &log, queue).await;
    for _ in 0..20 {
        pass_time(&clock).await;
    }
    assert_eq!((log.count(text), log.count(queue)), (1, 1));
    assert_eq!(log.count("`.queue(\"other\", 64)`"), 1);
    assert_eq!(log.count("known version 1 wait in queue default"), 0);
    engine.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn a_caller_that_waits_for_work_that_no_worker_can_run_is_warned() -> Result<(), BoxError> {
    let (log, _guard) = Log::begin();
    let (clock, abide, engine) = engine().await?;
    let forgotten = abide.start(FORGOTTEN, 1).await?;
    let waits = tokio::spawn(async move { forgotten.result().await });
    let text = "the end of instance 1 is waited for, but no live worker serves queue mail with code for forgotten version 1";
    until_warned(&clock, &log, text).await;
    assert!(!waits.is_finished());
    waits.abort();
    engine.shutdown().await;
    Ok(())
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn a_second_process_with_workers_on_one_file_is_warned_of() -> Result<(), BoxError> {
    let (log, _guard) = Log::begin();
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("orders.db").display());
    let engine = async |abide: &Abide| {
        let engine = abide.engine().job(KNOWN, |n| async move { Ok(n) });
        engine.start().await
    };
    let text = "another process runs workers on this SQLite file";
    let first = Abide::open(&url).await?;
    // Any number of engines of one process.
    let engines = [engine(&first).await?, engine(&first).await?];
    // A store without workers is fine.
    let second = Abide::open(&url).await?;
    second.start(KNOWN, 1).await?.result().await?;
    assert_eq!(log.count(text), 0);
    let strange = engine(&second).await?;
    assert_eq!(log.count(text), 1);
    // It works all the same.
    assert_eq!(second.start(KNOWN, 2).await?.result().await?, 2);
    strange.shutdown().await;
    for engine in engines {
        engine.shutdown().await;
    }
    first.close().await;
    // The one that was there has gone.
    let third = Abide::open(&url).await?;
    let alone = engine(&third).await?;
    assert_eq!(log.count(text), 1);
    alone.shutdown().await;
    Ok(())
}
