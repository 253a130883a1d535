//! W3a: one parked instance, from the signal to the step that it wakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abide::{Abide, Status};
use tokio::sync::Notify;

use super::engine;
use crate::args::Plan;
use crate::limits::inbox::Inbox;
use crate::machines::{GO, Waker, now};
use crate::process::Other;
use crate::report::Measured;
use crate::rounds::middle;
use crate::site::Site;
use crate::{Result, args};

/// Number of signals that the median is of.
const SIGNALS: usize = 200;
/// The pause between two of them: so that each finds an idle system.
const PAUSE: Duration = Duration::from_millis(2);

/// In one process.
pub async fn run(site: &Site, plan: &Plan) -> Result<Measured> {
    let mut inbox = Inbox::create(site, 1).await?;
    let limit = async || by_hand(&mut inbox, plan).await;
    let abide = Abide::open(&site.fresh().await?).await?;
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
    let waker = Waker::new(move |_| {
        let _ = sender.send(Instant::now());
    });
    let engine = engine(&abide, waker).await?;
    abide.start(Waker::default(), 0).key("waker").await?;
    parked(&abide).await?;
    let ours = async || {
        let mut took = Vec::with_capacity(plan.of(SIGNALS));
        for _ in 0..plan.of(SIGNALS) {
            let begun = Instant::now();
            abide.signal("waker", GO, &1).await?;
            let ran = woken.recv().await.ok_or("the engine is gone")?;
            took.push(ran.saturating_duration_since(begun));
            parked(&abide).await?;
        }
        Ok(median(took))
    };
    let round = middle(plan, limit, ours).await?;
    engine.shutdown().await;
    abide.close().await;
    Ok(round.figure("µs").into())
}

/// Two rows, a commit, and a task that is notified.
async fn by_hand(inbox: &mut Inbox, plan: &Plan) -> Result<f64> {
    let bell = Arc::new(Notify::new());
    let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
    let waiting = bell.clone();
    let waiter = tokio::spawn(async move {
        loop {
            waiting.notified().await;
            if sender.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    let mut took = Vec::with_capacity(plan.of(SIGNALS));
    for _ in 0..plan.of(SIGNALS) {
        tokio::time::sleep(PAUSE).await;
        let begun = Instant::now();
        inbox.deliver(&[1]).await?;
        bell.notify_one();
        let ran = woken.recv().await.ok_or("the waiter is gone")?;
        took.push(ran.saturating_duration_since(begun));
    }
    waiter.abort();
    Ok(median(took))
}

/// Waits until the instance is parked again, and for a moment more.
async fn parked(abide: &Abide) -> Result<()> {
    for _ in 0..5_000 {
        tokio::time::sleep(PAUSE).await;
        let waker = abide.get("waker").await?.ok_or("it is gone")?;
        if waker.status == Status::AwaitingSignal {
            return Ok(());
        }
    }
    Err("the instance does not park".into())
}

/// Between two processes.
pub async fn between(site: &Site, plan: &Plan) -> Result<Measured> {
    if let Site::Sqlite(_) = site {
        return Ok(Measured::Skipped(
            "SQLite does not notify other processes: they poll the file".to_owned(),
        ));
    }
    let (mut inbox, listening) = listened_to(site).await?;
    let mut listener = Other::start(args::LISTEN, &listening).await?;
    let limit = async || {
        let mut took = Vec::with_capacity(plan.of(SIGNALS));
        for _ in 0..plan.of(SIGNALS) {
            tokio::time::sleep(PAUSE).await;
            let begun = now().as_micros();
            inbox.deliver(&[1]).await?;
            inbox.notify().await?;
            took.push(heard(&mut listener, begun).await?);
        }
        Ok(median(took))
    };
    let url = site.fresh().await?;
    let abide = Abide::open(&url).await?;
    abide.start(Waker::default(), 0).key("waker").await?;
    let mut worker = Other::start(args::WORKER, &url).await?;
    parked(&abide).await?;
    let ours = async || {
        let mut took = Vec::with_capacity(plan.of(SIGNALS));
        for _ in 0..plan.of(SIGNALS) {
            let begun = now().as_micros();
            abide.signal("waker", GO, &1).await?;
            took.push(heard(&mut worker, begun).await?);
            parked(&abide).await?;
        }
        Ok(median(took))
    };
    let round = middle(plan, limit, ours).await?;
    abide.close().await;
    Ok(round.figure("µs").into())
}

/// An inbox, and the database that it lies in.
async fn listened_to(site: &Site) -> Result<(Inbox, String)> {
    let inbox = Inbox::create(site, 1).await?;
    let url = site.last().ok_or("no database was made")?;
    Ok((inbox, url))
}

/// Time from a moment until the other process was woken, which says when that was.
async fn heard(other: &mut Other, begun: i64) -> Result<Duration> {
    let micros = other.line().await?.trim().parse::<i64>()?;
    let micros = micros.saturating_sub(begun);
    Ok(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

/// The other process of the limit: listens.
pub async fn listen(url: &str) -> Result<()> {
    let (client, mut connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let message = std::future::poll_fn(|cx| connection.poll_message(cx)).await;
            match message {
                Some(Ok(tokio_postgres::AsyncMessage::Notification(_))) => {
                    let _ = sender.send(now().as_micros());
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    });
    client.batch_execute("listen go").await?;
    println!("ready");
    while let Some(at) = heard.recv().await {
        println!("{at}");
    }
    Ok(())
}

/// The other process of abide: an engine.
pub async fn worker(url: &str) -> Result<()> {
    let abide = Abide::open(url).await?;
    let waker = Waker::new(|_| println!("{}", now().as_micros()));
    let _engine = engine(&abide, waker).await?;
    println!("ready");
    std::future::pending().await
}

fn median(mut took: Vec<Duration>) -> f64 {
    took.sort_unstable();
    let middle = took.get(took.len() / 2).copied().unwrap_or_default();
    middle.as_secs_f64() * 1e6
}
