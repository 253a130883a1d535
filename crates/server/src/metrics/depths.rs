//! Gauges of the number of instances per queue and status. They are read on request, every few seconds at most, in a
//! task of their own, so that a scrape is answered even if the store is slow.

use std::sync::Arc;
use std::time::Duration;

use abide::store::{QueueDepth, Store};
use abide_kernel::model::Lane;
use abide_kernel::rules::liveness::serves_lane;
use abide_kernel::{ReadyLane, label};
use metrics::gauge;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::background_read::BackgroundRead;

/// How long the values are fresh.
const FRESH: Duration = Duration::from_secs(5);

/// The values stay fresh for this many times the duration of the read. Counting millions of rows takes seconds, and
/// scrapes must not keep the database busy with that.
const REST: u32 = 20;

/// How long a response waits for a read; then it contains the last values.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of instances per queue and status.
pub struct Depths {
    read: BackgroundRead<bool>,
    gauges: Arc<Gauges>,
    born: Instant,
}

impl Depths {
    /// Spawns the task that reads the store on request.
    pub fn begin(store: Arc<dyn Store>, stop: CancellationToken) -> Self {
        let gauges = Arc::new(Gauges {
            store,
            last: Mutex::new(None),
        });
        let sampled_gauges = gauges.clone();
        let read = BackgroundRead::begin(FRESH, stop, move || {
            let gauges = sampled_gauges.clone();
            Box::pin(async move {
                let sampled = gauges.sample().await;
                if let Err(error) = &sampled {
                    // The other metrics are still reported.
                    tracing::warn!(%error, "the depths of the queues could not be looked up");
                }
                sampled.is_ok()
            })
        })
        .resting(REST);
        let born = Instant::now();
        Self { read, gauges, born }
    }

    /// Refreshes the gauges if the store answers in time, and sets the gauge of their age.
    pub async fn refresh(&self) {
        self.read.newest(PATIENCE).await;
        let last = self.gauges.last.try_lock().ok();
        let set = last.and_then(|last| last.as_ref().map(|(at, _)| *at));
        let age = set.unwrap_or(self.born).elapsed();
        gauge!("abide_depths_age_seconds").set(age.as_secs_f64());
    }
}

/// The gauges, and the values that were set last.
struct Gauges {
    store: Arc<dyn Store>,
    /// The time when they were last set, and which ones.
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
    /// Sets the gauges. Gauges that no longer have a value are set to zero.
    async fn sample(&self) -> abide_kernel::Result<()> {
        let (depths, workers, ready) = futures_util::future::try_join3(
            self.store.depths(),
            self.store.workers(),
            self.store.ready_lanes(),
        )
        .await?;
        let now = self.store.clock().now();
        gauge!("abide_workers").set(workers.len() as f64);
        let mut readings: Vec<(Reading, f64)> = Vec::new();
        // Queues above the limit of labels share one label, so their values are combined.
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
            blocked,
            oldest,
        } in depths
        {
            let queue = label("queue", queue.as_str()).value().to_owned();
            let count = count as f64;
            add(
                Reading {
                    name: "abide_blocked",
                    queue: queue.clone(),
                    label: None,
                },
                blocked as f64,
                sum,
            );
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
        let is_unserved = |one: &ReadyLane| {
            let Lane { machine, version } = &one.lane;
            let serves = |worker| serves_lane(worker, &one.queue, machine, *version);
            !workers.iter().any(serves)
        };
        for ReadyLane { queue, lane } in ready.into_iter().filter(is_unserved) {
            let machine = label("machine", lane.machine.as_str()).value().to_owned();
            add(
                Reading {
                    name: "abide_unserved",
                    queue: label("queue", queue.as_str()).value().to_owned(),
                    label: Some(("machine", machine)),
                },
                1.0,
                sum,
            );
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
