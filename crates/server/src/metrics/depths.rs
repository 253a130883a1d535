//! How many instances stand where, looked up when somebody asks, at most every few seconds.

use std::sync::Arc;
use std::time::Duration;

use abide::{QueueDepth, Store};
use metrics::gauge;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::label;

/// For how long a look is good enough.
const FRESH: Duration = Duration::from_secs(5);

/// How many instances stand where.
pub struct Depths {
    store: Arc<dyn Store>,
    /// When it was last looked, and which gauges were set then.
    last: Mutex<Option<(Instant, Vec<Reading>)>>,
}

/// One gauge with its labels.
#[derive(Clone, PartialEq, Eq)]
struct Reading {
    name: &'static str,
    queue: String,
    label: Option<(&'static str, String)>,
}

impl Depths {
    /// Those of that store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            last: Mutex::new(None),
        }
    }

    /// Sets the gauges, unless that was done a moment ago. What has gone since is set to zero.
    pub async fn sample(&self) -> abide_kernel::Result<()> {
        let mut last = self.last.lock().await;
        if last.as_ref().is_some_and(|(at, _)| at.elapsed() < FRESH) {
            return Ok(());
        }
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
