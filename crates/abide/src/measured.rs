//! Measures what a store is asked and what it answers, by the `metrics` facade. The library picks no recorder: without
//! one, nothing is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use abide_core::model::{
    BarrierNumber, Cause, Child, Claimed, Command, CommandId, CommandKind, Committed, ContractId,
    Declared, Delivered, Delivery, Document, DocumentKind, EventSequence, HistoryRow, Instance,
    InstanceId, Json, Name, Published, Refusal, Timestamp, Worker,
};
use abide_kernel::{
    Answer, Clock, CommandFilter, CommandPage, Endings, Error, EventFilter, EventPage, Filter,
    Listener, Op, OwnTransaction, Page, QueueDepth, Records, Result, Store, Target, WaiterFilter,
    WaiterPage,
};
use futures_util::future::BoxFuture;
use metrics::{Label, counter, histogram};

/// A store whose work is measured.
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

    fn begin(&self, limit: Option<Duration>) -> BoxFuture<'_, Result<Box<dyn OwnTransaction>>> {
        self.0.begin(limit)
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

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        self.0.get(target)
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        self.0.list(filter, before, limit)
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        self.0.history(id, after, limit)
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        self.0.children_page(parent, barrier, after)
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        self.0.endings_page(ids)
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        self.0.commands(filter, before, limit)
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        self.0.records_page(ids)
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        self.0.inbox(id)
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        self.0.events(filter, before, limit)
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        self.0.waiters(filter, after, limit)
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        self.0.contract(id)
    }

    fn machines(&self) -> BoxFuture<'_, Result<Vec<Declared>>> {
        self.0.machines()
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        self.0.document(kind, name)
    }

    fn documents(&self, kind: DocumentKind) -> BoxFuture<'_, Result<Vec<Document>>> {
        self.0.documents(kind)
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        self.0.next_due()
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        self.0.workers()
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        self.0.depths()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

/// A step has run that long.
pub(crate) fn step(machine: &Name, step: &Name, took: Duration) {
    let labels = [label("machine", machine), label("step", step)];
    histogram!("abide_step_seconds", labels.iter()).record(took);
}

/// The failure of an instance cannot be stored.
pub(crate) fn stuck() {
    count_many("abide_stuck_total", 1);
}

fn measure(op: &Op, answer: &Answer, took: Duration, now: Timestamp) {
    match (op, answer) {
        (Op::Claim(asked), Answer::Claimed(each)) if !each.is_empty() => {
            claimed(&asked.queue, each, now);
        }
        (_, Answer::Committed(each)) => committed(each, took),
        (Op::Deliver(sent), Answer::Delivered(each)) => delivered(sent, each, took),
        (_, Answer::Started(each)) => transaction("starts", each.len(), took),
        (_, Answer::Published(each)) => published(each, took),
        (_, Answer::Fired { count, .. }) => {
            count_many("abide_fired_total", *count);
        }
        (Op::Once(requests), Answer::Once(each)) => {
            // What was carried out before was counted then.
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
    let class = match error {
        Error::Conflict(_) => "conflict",
        Error::Unavailable(_) => "unavailable",
        Error::Unknown(_) => "unknown",
        Error::Refused(_) => "refused",
        _ => "broken",
    };
    counter!("abide_failed_transactions_total", "class" => class).increment(1);
}

fn claimed(queue: &Name, each: &[Claimed], now: Timestamp) {
    let labels = [label("queue", queue)];
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

fn delivered(sent: &[Delivery], each: &[Result<Delivered, Refusal>], took: Duration) {
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

/// The most names that labels may have, in all; those that come later are counted as `other`.
const NAMES: usize = 1_000;

fn label(key: &'static str, name: &Name) -> Label {
    static KNOWN: LazyLock<RwLock<BTreeSet<Arc<str>>>> = LazyLock::new(RwLock::default);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(name.as_str()) {
        return Label::new(key, name.clone());
    }
    drop(known);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= NAMES && !known.contains(name.as_str()) {
        return Label::from_static_parts(key, "other");
    }
    let name: Arc<str> = Arc::from(name.as_str());
    known.insert(name.clone());
    Label::new(key, name)
}
