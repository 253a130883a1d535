//! Load on a store: calls as fast as they are answered, or at even intervals.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use abide::Abide;
use abide::client::new_start;
use abide::engine::Engine;
use tokio::sync::{mpsc, oneshot};

use super::{committed, set, start_all};
use crate::Result;
use crate::machines::{GO, One, Order, Waker};

/// Calls a second by so many callers, each of which calls again as soon as it was answered.
pub async fn closed_loop<F: Future<Output = Result<Instant>> + Send + 'static>(
    calls: usize,
    callers: usize,
    call: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Result<f64> {
    let (next, call) = (Arc::new(AtomicUsize::new(0)), Arc::new(call));
    let begun = Instant::now();
    let callers = (0..callers).map(|_| {
        let (next, call) = (next.clone(), call.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= calls {
                    return Result::Ok(());
                }
                call(number).await?;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    Ok(calls as f64 / begun.elapsed().as_secs_f64())
}

/// Calls at even intervals, so many a second, whatever becomes of the earlier ones, and answers how long each took, sorted.
///
/// Each is timed from the moment when it was to be made. So a call that could not be made in time, because everything stood
/// still, counts with its delay, and is not left out (coordinated omission). A thread makes the calls, which wakes more
/// precisely than a timer of the runtime.
pub async fn open_loop<F: Future<Output = Result<Instant>> + Send + 'static>(
    rate: f64,
    calls: usize,
    call: impl Fn(usize) -> F + Send + 'static,
) -> Result<Vec<Duration>> {
    let (sender, mut answers) = mpsc::unbounded_channel();
    let runtime = tokio::runtime::Handle::current();
    let begun = Instant::now();
    let caller = std::thread::spawn(move || {
        for number in 0..calls {
            let planned = begun + Duration::from_secs_f64(number as f64 / rate);
            std::thread::sleep(planned.saturating_duration_since(Instant::now()));
            let (answer, sender) = (call(number), sender.clone());
            runtime.spawn(async move {
                let took = answer.await.map(|at| at.saturating_duration_since(planned));
                let _ = sender.send(took);
            });
        }
    });
    let mut took = Vec::with_capacity(calls);
    while let Some(answer) = answers.recv().await {
        took.push(answer?);
    }
    caller.join().map_err(|_| "the caller panicked")?;
    took.sort_unstable();
    Ok(took)
}

/// The time that so many in a hundred do not exceed, in milliseconds; of what is sorted.
pub fn percentile_ms(sorted: &[Duration], percent: f64) -> f64 {
    let rank = (percent * sorted.len() as f64 / 100.0).ceil() as usize;
    let found = sorted.get(rank.saturating_sub(1)).or(sorted.last());
    found.map_or(f64::NAN, Duration::as_secs_f64) * 1_000.0
}

/// Number of instances that wait for signals.
const WAKERS: usize = 1_000;

/// A store with an engine, on which both kinds of calls can be made.
pub struct Target {
    pub abide: Abide,
    engine: Engine,
    wakers: Arc<Wakers>,
}

/// For each instance that waits, those that want to know when it was woken.
struct Wakers(Vec<Mutex<VecDeque<oneshot::Sender<Instant>>>>);

impl Target {
    pub async fn open(url: &str) -> Result<Self> {
        let abide = Abide::open(url).await?;
        let wakers = (0..WAKERS).map(|_| Mutex::default());
        let wakers = Arc::new(Wakers(wakers.collect()));
        let key =
            |number| new_start(Waker::default(), number as u32).key(format!("waker:{number}"));
        start_all(&abide, WAKERS, key).await?;
        let woken = wakers.clone();
        let waker = Waker::new(move |number| {
            if let Some(waiting) = woken.of(number as usize).pop_front() {
                let _ = waiting.send(Instant::now());
            }
        });
        let engine = set(abide.engine()).machine(One).machine(waker);
        let engine = engine.start().await?;
        committed(&engine, WAKERS as u64).await?;
        Ok(Self {
            abide,
            engine,
            wakers,
        })
    }

    /// Starts an instance of one step; answered when that was committed.
    pub fn start(&self) -> impl Fn(usize) -> Answer + Send + Sync + 'static {
        let abide = self.abide.clone();
        move |number| {
            let abide = abide.clone();
            Box::pin(async move {
                let started = abide.start(One, Order::new(number as u64)).await?;
                started.result().await?;
                Ok(Instant::now())
            })
        }
    }

    /// Signals one of those that wait, each in turn; answered when its step runs.
    pub fn signal(&self) -> impl Fn(usize) -> Answer + Send + Sync + 'static {
        let (abide, wakers) = (self.abide.clone(), self.wakers.clone());
        move |number| {
            let (abide, number) = (abide.clone(), number % WAKERS);
            let (sender, woken) = oneshot::channel();
            wakers.of(number).push_back(sender);
            Box::pin(async move {
                abide.signal(format!("waker:{number}"), GO, &1).await?;
                Ok(woken.await?)
            })
        }
    }

    pub async fn close(self) {
        self.engine.shutdown().await;
        self.abide.close().await;
    }
}

/// The moment at which a call was answered.
pub type Answer = std::pin::Pin<Box<dyn Future<Output = Result<Instant>> + Send>>;

impl Wakers {
    fn of(&self, number: usize) -> MutexGuard<'_, VecDeque<oneshot::Sender<Instant>>> {
        // In range: all numbers are below that of those which wait.
        #[expect(
            clippy::indexing_slicing,
            reason = "the caller has taken the number modulo the length"
        )]
        let waiting = &self.0[number];
        waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_call_that_is_made_late_counts_from_when_it_was_to_be_made() {
        // The first call keeps the caller for 50 ms; the others were to be made 1 ms after each other meanwhile.
        let slow = |number: usize| {
            if number == 0 {
                std::thread::sleep(Duration::from_millis(50));
            }
            std::future::ready(Result::Ok(Instant::now()))
        };
        let took = open_loop(1_000.0, 20, slow).await.unwrap();
        assert_eq!(took.len(), 20);
        assert!(took[0] >= Duration::from_millis(30), "{took:?}");
        assert!(took[19] >= Duration::from_millis(50), "{took:?}");
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let took: Vec<Duration> = (1..=1_000).map(Duration::from_millis).collect();
        let found = [50.0, 99.0, 99.9, 100.0].map(|percent| percentile_ms(&took, percent));
        assert_eq!(found, [500.0, 990.0, 999.0, 1_000.0]);
        assert!(percentile_ms(&[], 50.0).is_nan());
    }
}
