//! Measures the requests to a store and its answers, through the `metrics` facade. The library picks no recorder;
//! without one, nothing is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::{
    Cause, Claimed, CommandKind, Committed, Delivered, Name, NewCommand, Published, Refusal,
    Timestamp,
};
use abide_kernel::{
    Answer, Clock, Error, Listener, Op, OwnTransaction, Query, QueryResult, Renewer, Result, Store,
    label,
};
use futures_util::future::BoxFuture;
use metrics::{Counter, Histogram, counter, histogram};

/// A store whose operations are measured.
pub(crate) struct Measured(pub Arc<dyn Store>);

impl Store for Measured {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            let began = Instant::now();
            let answers = self.0.run(ops.clone()).await;
            if let Err(error) = &answers {
                failed(error);
            }
            if let Ok(answers) = &answers {
                let now = self.0.clock().now();
                for (op, answer) in ops.iter().zip(answers) {
                    measure(op, answer, began.elapsed(), now);
                }
            }
            answers
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        Box::pin(async move {
            let result = self.0.read(query).await;
            if let Err(error) = &result {
                counter!("abide_failed_reads_total", "class" => class(error)).increment(1);
            }
            result
        })
    }

    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        self.0.begin(limit)
    }

    fn renewer(&self) -> Result<Option<Box<dyn Renewer>>> {
        self.0.renewer()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.0.clock()
    }

    fn listen(&self) -> Listener {
        self.0.listen()
    }

    fn writers(&self) -> usize {
        self.0.writers()
    }

    fn outbox_poll(&self) -> Option<Duration> {
        self.0.outbox_poll()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

/// Measures attempts at steps. It keeps the handles of its metrics, because finding them again for each attempt costs
/// more than recording it.
pub(crate) struct StepMeter {
    machines: BTreeMap<Name, MachineMeter>,
    /// When the handles were found first.
    since: Instant,
}

struct MachineMeter {
    attempts: Counter,
    seconds: BTreeMap<Name, Histogram>,
}

/// The time for which handles are kept. After that they are found again, for a host that has installed a recorder since.
const HANDLES_KEPT: Duration = Duration::from_secs(1);

impl StepMeter {
    pub fn new() -> Self {
        Self {
            machines: BTreeMap::new(),
            since: Instant::now(),
        }
    }

    /// Drops handles that were found too long ago.
    pub fn refresh(&mut self) {
        if self.since.elapsed() >= HANDLES_KEPT {
            *self = Self::new();
        }
    }

    /// Records an attempt at a step: its duration, and `true` if it failed.
    pub fn record(&mut self, machine: &Name, step: &Name, took: Duration, failed: bool) {
        if !self.machines.contains_key(machine) {
            self.machines
                .insert(machine.clone(), MachineMeter::new(machine));
        }
        let Some(meter) = self.machines.get_mut(machine) else {
            return;
        };
        meter.attempts.increment(1);
        if failed {
            let labels = [label("machine", machine.as_str())];
            counter!("abide_step_failures_total", labels.iter()).increment(1);
        }
        if let Some(seconds) = meter.seconds.get(step) {
            return seconds.record(took);
        }
        let labels = [
            label("machine", machine.as_str()),
            label("step", step.as_str()),
        ];
        let seconds = histogram!("abide_step_seconds", labels.iter());
        seconds.record(took);
        meter.seconds.insert(step.clone(), seconds);
    }
}

impl MachineMeter {
    fn new(machine: &Name) -> Self {
        let labels = [label("machine", machine.as_str())];
        Self {
            attempts: counter!("abide_step_attempts_total", labels.iter()),
            seconds: BTreeMap::new(),
        }
    }
}

/// Counts an instance whose failure cannot be stored.
pub(crate) fn stuck() {
    count_many("abide_stuck_total", 1);
}

fn measure(op: &Op, answer: &Answer, took: Duration, now: Timestamp) {
    match (op, answer) {
        (Op::Claim(request), Answer::Claimed(each)) if !each.is_empty() => {
            claimed(&request.queue, each, now);
        }
        (_, Answer::Committed(each)) => committed(each, took),
        (Op::Deliver(sent), Answer::Delivered(each)) => delivered(sent, each, took),
        (_, Answer::Started(each)) => transaction("starts", each.len(), took),
        (_, Answer::Published(each)) => published(each, took),
        (_, Answer::Fired { count, .. }) => {
            count_many("abide_fired_total", *count);
        }
        (Op::Once(requests), Answer::Once(each)) => {
            // Requests that were carried out before are already counted.
            for (one, answered) in requests.iter().zip(each) {
                if let Ok(answered) = answered
                    && !answered.replayed
                {
                    let answers = one.ops.iter().zip(&answered.answers);
                    answers.for_each(|(op, answer)| measure(op, answer, took, now));
                }
            }
        }
        (_, Answer::Swept { deleted, .. }) => count_many("abide_swept_total", *deleted),
        _ => {}
    }
}

fn failed(error: &Error) {
    counter!("abide_failed_transactions_total", "class" => class(error)).increment(1);
}

/// The class of an error, by what a caller must do about it.
const fn class(error: &Error) -> &'static str {
    match error {
        Error::Conflict(_) => "conflict",
        Error::Unavailable(_) => "unavailable",
        Error::Unknown(_) => "unknown",
        Error::Refused(_) => "refused",
        _ => "broken",
    }
}

fn claimed(queue: &Name, each: &[Claimed], now: Timestamp) {
    let labels = [label("queue", queue.as_str())];
    counter!("abide_claimed_total", labels.iter()).increment(each.len() as u64);
    let latency = histogram!("abide_claim_latency_seconds", labels.iter());
    for one in each {
        latency.record(now.since(one.due_at));
    }
    let again = each.iter().filter(|one| one.cause == Cause::Reclaim);
    count_many("abide_reclaimed_total", again.count());
}

fn committed(each: &[Committed], took: Duration) {
    let count = |is: fn(&Committed) -> bool| each.iter().filter(|one| is(one)).count();
    let stale = count(|one| matches!(one, Committed::Stale));
    let refused = count(|one| matches!(one, Committed::Refused(_)));
    count_many("abide_committed_total", each.len() - stale - refused);
    count_many("abide_stale_total", stale);
    count_many("abide_refused_total", refused);
    transaction("outcomes", each.len(), took);
}

fn delivered(sent: &[NewCommand], each: &[Result<Delivered, Refusal>], took: Duration) {
    transaction("messages", each.len(), took);
    let mut outcomes: BTreeMap<(&'static str, &'static str), u64> = BTreeMap::new();
    for (delivery, answer) in sent.iter().zip(each) {
        let kind = match delivery.kind {
            CommandKind::Signal => "signal",
            CommandKind::Update => "update",
            CommandKind::Cancel => "cancel",
        };
        let outcome = match answer {
            Ok(delivered) if delivered.duplicate => "duplicate",
            Ok(delivered) => delivered.verdict.outcome(),
            Err(_) => "refused",
        };
        *outcomes.entry((kind, outcome)).or_default() += 1;
    }
    for ((kind, outcome), count) in outcomes {
        counter!("abide_signals_total", "kind" => kind, "outcome" => outcome).increment(count);
    }
}

fn published(each: &[Result<Published, Refusal>], took: Duration) {
    transaction("events", each.len(), took);
    let mut outcomes: BTreeMap<&'static str, u64> = BTreeMap::new();
    for answer in each {
        let outcome = match answer {
            Ok(published) if published.duplicate => "duplicate",
            Ok(published) if published.matched > 0 => "matched",
            Ok(_) => "unmatched",
            Err(_) => "refused",
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    for (outcome, count) in outcomes {
        counter!("abide_events_total", "outcome" => outcome).increment(count);
    }
}

fn transaction(kind: &'static str, size: usize, took: Duration) {
    histogram!("abide_commit_batch_size", "kind" => kind).record(size as f64);
    histogram!("abide_commit_seconds", "kind" => kind).record(took);
}

fn count_many(name: &'static str, count: usize) {
    if count > 0 {
        counter!(name).increment(count as u64);
    }
}
