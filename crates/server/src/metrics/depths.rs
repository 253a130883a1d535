//! How many instances stand where, looked up when somebody asks, at most every few seconds, in a task of its own: who asks
//! is answered whatever the store does.

use std::sync::Arc;
use std::time::Duration;

use abide::{QueueDepth, Store};
use metrics::gauge;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::label;
use crate::lookout::Lookout;

/// For how long a look is good enough.
const FRESH: Duration = Duration::from_secs(5);

/// How long an answer waits for a look; then the figures of the last one have to do.
const PATIENCE: Duration = Duration::from_millis(500);

/// How many instances stand where.
pub struct Depths {
    lookout: Lookout<bool>,
    gauges: Arc<Gauges>,
    born: Instant,
}

impl Depths {
    /// Begins to look into that store, when it is asked.
    pub fn begin(store: Arc<dyn Store>, stop: CancellationToken) -> Self {
        let gauges = Arc::new(Gauges {
            store,
            last: Mutex::new(None),
        });
        let looking = gauges.clone();
        let lookout = Lookout::begin(FRESH, stop, move || {
            let gauges = looking.clone();
            Box::pin(async move {
                let sampled = gauges.sample().await;
                if let Err(error) = &sampled {
                    // The rest is worth having, too.
                    tracing::warn!(%error, "the depths of the queues could not be looked up");
                }
                sampled.is_ok()
            })
        });
        let born = Instant::now();
        Self {
            lookout,
            gauges,
            born,
        }
    }

    /// Sees to it that the gauges are fresh, if the store answers in time, and says how old they are.
    pub async fn refresh(&self) {
        self.lookout.newest(PATIENCE).await;
        let last = self.gauges.last.try_lock().ok();
        let set = last.and_then(|last| last.as_ref().map(|(at, _)| *at));
        let age = set.unwrap_or(self.born).elapsed();
        gauge!("abide_depths_age_seconds").set(age.as_secs_f64());
    }
}

/// The gauges, and what they were last set to.
struct Gauges {
    store: Arc<dyn Store>,
    /// When they were last set, and which.
    last: Mutex<Option<(Instant, Vec<Reading>)>>,
}

/// One gauge with its labels.
#[derive(Clone, PartialEq, Eq)]
struct Reading {
    name: &'static str,
    queue: String,
    label: Option<(&'static str, String)>,
}

impl Gauges {
    /// Sets the gauges. What has gone since is set to zero.
    async fn sample(&self) -> abide_kernel::Result<()> {
        let (depths, workers) =
            futures_util::future::try_join(self.store.depths(), self.store.workers()).await?;
        let now = self.store.clock().now();
        gauge!("abide_workers").set(workers.len() as f64);
        let mut readings: Vec<(Reading, f64)> = Vec::new();
        // Queues beyond the number that have labels of their own share one.
        let mut add = |reading: Reading, value: f64, both: fn(f64, f64) -> f64| match readings
            .iter_mut()
            .find(|(one, _)| *one == reading)
        {
            Some((_, before)) => *before = both(*before, value),
            None => readings.push((reading, value)),
        };
        let sum = |one: f64, other: f64| one + other;
        for QueueDepth {
            queue,
            status,
            wait_kind,
            count,
            oldest,
        } in depths
        {
            let queue = label(queue.as_str());
            let count = count as f64;
            let status = ("status", status.name().to_owned());
            add(
                Reading {
                    name: "abide_queue_depth",
                    queue: queue.clone(),
                    label: Some(status),
                },
                count,
                sum,
            );
            if let Some(kind) = wait_kind {
                let kind = ("kind", kind.name().to_owned());
                add(
                    Reading {
                        name: "abide_waits",
                        queue: queue.clone(),
                        label: Some(kind),
                    },
                    count,
                    sum,
                );
            }
            if let Some(oldest) = oldest {
                let age = now.since(oldest).as_secs_f64();
                add(
                    Reading {
                        name: "abide_queue_oldest_ready_seconds",
                        queue,
                        label: None,
                    },
                    age,
                    f64::max,
                );
            }
        }
        let mut last = self.last.lock().await;
        let gone = last
            .take()
            .map(|(_, readings)| readings)
            .unwrap_or_default();
        gone.iter().for_each(|reading| reading.set(0.0));
        readings
            .iter()
            .for_each(|(reading, value)| reading.set(*value));
        *last = Some((
            Instant::now(),
            readings.into_iter().map(|(reading, _)| reading).collect(),
        ));
        Ok(())
    }
}

impl Reading {
    fn set(&self, value: f64) {
        let queue = ("queue", self.queue.clone());
        let labels: Vec<(&'static str, String)> =
            std::iter::once(queue).chain(self.label.clone()).collect();
        gauge!(self.name, &labels).set(value);
    }
}
