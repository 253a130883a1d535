//! `abide bench`: how fast abide is on this store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use abide::{Abide, BoxError, Context as Ctx, Job, Machine, Outcome, Signal, Step, done, next};
use serde_json::json;

use super::context::Context;
use super::failure::{Exit, Failure, Result};
use super::table::{Table, fixed, number};

/// Measure how fast abide is on this store: starts, steps and signals
///
/// It makes instances of the machines bench/job, bench/steps and bench/signals in the queue bench, and ends them all; the
/// retention deletes them. It writes as fast as it can: think twice on a store that others use.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide bench --store sqlite:/tmp/bench.db\n",
    "  abide bench --store postgres://abide@db/bench --seconds 10 --callers 128"
))]
pub struct Args {
    /// How long to measure in total, without the time to finish what has begun
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Number of concurrent callers
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    callers: u64,
}

/// The queue that it works in.
const QUEUE: &str = "bench";
/// Runs and does nothing.
const JOB: Job<u64, ()> = Job::new("bench/job").queue(QUEUE);
/// The most that are started: they all must be run afterwards.
const STARTS_MAX: u64 = 100_000;

#[derive(Step)]
enum At {
    Go,
}

/// Runs steps, one after the other, until it is asked to stop.
struct Steps {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
}

impl Machine for Steps {
    const NAME: &'static str = "bench/steps";
    type Step = At;
    type State = u64;
    type Output = u64;

    async fn step(&self, _: At, ctx: &mut Ctx<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        self.count.fetch_add(1, Ordering::Relaxed);
        match self.stop.load(Ordering::Relaxed) {
            true => done(*ctx.state()),
            false => next(At::Go),
        }
    }
}

const PING: Signal<bool> = Signal::new("ping");

/// Waits for signals until the last one, which is marked.
struct Signals;

#[derive(Step)]
enum Hear {
    Wait,
    Heard,
}

impl Machine for Signals {
    const NAME: &'static str = "bench/signals";
    type Step = Hear;
    type State = u64;
    type Output = u64;

    async fn step(&self, at: Hear, ctx: &mut Ctx<Self>) -> Outcome<Self> {
        if let Hear::Heard = at {
            let heard = ctx.awaited_all(PING)?;
            *ctx.state_mut() += heard.len() as u64;
            if heard.contains(&true) {
                return done(*ctx.state());
            }
        }
        ctx.wait_for(PING).then(Hear::Heard)
    }
}

/// The result of one measurement.
struct Figure {
    what: &'static str,
    count: u64,
    took: Duration,
    /// How long single calls took, in the middle and at worst but one of a hundred.
    latency: Option<(Duration, Duration)>,
}

impl Figure {
    fn per_second(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.write().await?;
        let out = context.out;
        let phase = Duration::from_secs(self.seconds) / 3;
        out.progress("starts …");
        let own = abide.clone();
        let starts = calls("starts", self.callers, phase, STARTS_MAX, move |number| {
            let abide = own.clone();
            async move {
                abide.start(JOB, number).await?;
                Ok(())
            }
        })
        .await?;
        out.progress("runs …");
        let runs = drained(&abide, starts.count).await?;
        out.progress("steps …");
        let steps = steps(&abide, self.callers, phase).await?;
        out.progress("signals …");
        let signals = signals(&abide, self.callers, phase).await?;
        out.progress_ends();
        let figures = [starts, runs, steps, signals];
        if out.json {
            let entries = figures.iter().map(|figure| {
                let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
                json!({
                    "what": figure.what,
                    "per_second": figure.per_second().round(),
                    "count": figure.count,
                    "took_ms": ms(figure.took),
                    "p50_ms": figure.latency.map(|(p50, _)| ms(p50)),
                    "p99_ms": figure.latency.map(|(_, p99)| ms(p99)),
                })
            });
            out.document(
                &json!({"callers": self.callers, "figures": entries.collect::<Vec<_>>()}),
            )?;
            return Ok(Exit::Done);
        }
        let mut table = Table::new([
            fixed("what"),
            number("per second"),
            number("count"),
            number("p50").leaves(2),
            number("p99").leaves(1),
        ]);
        for figure in &figures {
            let milliseconds = |time: Option<Duration>| {
                time.map_or_else(
                    || "-".to_owned(),
                    |time| format!("{:.1} ms", time.as_secs_f64() * 1_000.0),
                )
            };
            table.row([
                figure.what.to_owned(),
                format!("{:.0}", figure.per_second()),
                figure.count.to_string(),
                milliseconds(figure.latency.map(|(p50, _)| p50)),
                milliseconds(figure.latency.map(|(_, p99)| p99)),
            ]);
        }
        table.print(&out)?;
        out.say(&format!(
            "{} callers; a start or a signal counts when it is durable, a run when its end is, a step when the next began",
            self.callers
        ));
        Ok(Exit::Done)
    }
}

/// Calls something from many sides for a time.
async fn calls<F, R>(
    what: &'static str,
    callers: u64,
    time: Duration,
    most: u64,
    call: F,
) -> Result<Figure>
where
    F: Fn(u64) -> R + Clone + Send + 'static,
    R: Future<Output = Result<(), BoxError>> + Send,
{
    let begun = Instant::now();
    let number = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (number, call) = (number.clone(), call.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                while begun.elapsed() < time {
                    let mine = number.fetch_add(1, Ordering::Relaxed);
                    if mine >= most {
                        break;
                    }
                    let called = Instant::now();
                    call(mine).await?;
                    latencies.push(called.elapsed());
                }
                Ok::<_, BoxError>(latencies)
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        let part = task.await.map_err(|error| failed(&error))?;
        latencies.extend(part.map_err(|error| failed(&*error))?);
    }
    let took = begun.elapsed();
    latencies.sort_unstable();
    let at = |percent: usize| latencies.get(latencies.len() * percent / 100).copied();
    Ok(Figure {
        what,
        count: latencies.len() as u64,
        took,
        latency: at(50).zip(at(99)),
    })
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Failure {
    let text = format!("it could not be measured: {error}");
    Failure::new(Exit::Refused, "bench", text).next("abide doctor")
}

/// Runs what was started.
async fn drained(abide: &Abide, count: u64) -> Result<Figure> {
    let begun = Instant::now();
    let left = Arc::new(AtomicU64::new(count));
    let (done, mut all) = tokio::sync::watch::channel(count == 0);
    let done = Arc::new(done);
    let engine = abide
        .engine()
        .job(JOB, move |_| {
            let (left, done) = (left.clone(), done.clone());
            async move {
                if left.fetch_sub(1, Ordering::Relaxed) <= 1 {
                    done.send_replace(true);
                }
                Ok(())
            }
        })
        .start()
        .await?;
    // Other workers may serve the queue too.
    let _ = tokio::time::timeout(Duration::from_secs(120), all.wait_for(|all| *all)).await;
    engine.shutdown().await;
    Ok(Figure {
        what: "runs",
        count,
        took: begun.elapsed(),
        latency: None,
    })
}

async fn steps(abide: &Abide, callers: u64, time: Duration) -> Result<Figure> {
    let (stop, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let machine = || Steps {
        stop: stop.clone(),
        count: count.clone(),
    };
    let mut runs = Vec::new();
    for _ in 0..callers {
        runs.push(abide.start(machine(), 0).queue(QUEUE).await?);
    }
    let begun = Instant::now();
    let engine = abide
        .engine()
        .machine(machine())
        .queue(QUEUE, 256)
        .start()
        .await?;
    tokio::time::sleep(time).await;
    let (counted, took) = (count.load(Ordering::Relaxed), begun.elapsed());
    stop.store(true, Ordering::Relaxed);
    for run in runs {
        run.result().await.map_err(|error| failed(&error))?;
    }
    engine.shutdown().await;
    Ok(Figure {
        what: "steps",
        count: counted,
        took,
        latency: None,
    })
}

async fn signals(abide: &Abide, callers: u64, time: Duration) -> Result<Figure> {
    let mut runs = Vec::new();
    for _ in 0..callers {
        runs.push(abide.start(Signals, 0).queue(QUEUE).await?);
    }
    let engine = abide
        .engine()
        .machine(Signals)
        .queue(QUEUE, 256)
        .start()
        .await?;
    let ids: Arc<[_]> = runs.iter().map(|run| run.id()).collect();
    let figure = calls("signals", callers, time, u64::MAX, {
        let abide = abide.clone();
        move |number| {
            let (abide, ids) = (abide.clone(), ids.clone());
            async move {
                let count = ids.len() as u64;
                if let Some(id) = ids.get((number % count.max(1)) as usize) {
                    abide.signal(*id, PING, &false).await?;
                }
                Ok(())
            }
        }
    })
    .await?;
    for run in runs {
        abide
            .signal(run.id(), PING, &true)
            .await
            .map_err(|error| failed(&error))?;
        run.result().await.map_err(|error| failed(&error))?;
    }
    engine.shutdown().await;
    Ok(figure)
}
