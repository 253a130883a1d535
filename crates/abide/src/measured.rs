//! Measures the requests to a store and its answers, through the `metrics` facade. The library picks no recorder;
//! without one, nothing is stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::{
    BarrierNumber, Cause, Child, Claimed, Command, CommandId, CommandKind, Committed, ContractId,
    Delivered, Document, DocumentKind, EventSequence, HistoryRow, Instance, InstanceId, Json, Lane,
    Name, NewCommand, OutboxId, Published, Refusal, Timestamp, Worker,
};
use abide_kernel::{
    Answer, Clock, CommandFilter, CommandPage, Contracts, DocumentPage, Endings, Error,
    EventFilter, EventPage, Filter, Listener, MachinePage, Op, OutboxDepth, OutboxRow,
    OwnTransaction, Page, QueueDepth, ReadyLane, Records, RefusedPage, Renewer, Result, Store,
    Surroundings, Tally, Target, WaiterFilter, WaiterPage, label,
};
use futures_util::future::BoxFuture;
use metrics::{counter, histogram};

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

    fn get<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Option<Instance>>> {
        read(self.0.get(target))
    }

    fn list<'a>(
        &'a self,
        filter: &'a Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Instance>>> {
        read(self.0.list(filter, before, limit))
    }

    fn around<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Vec<Surroundings>>> {
        read(self.0.around(ids))
    }

    fn history(
        &self,
        id: InstanceId,
        after: u32,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<HistoryRow>>> {
        read(self.0.history(id, after, limit))
    }

    fn children_page(
        &self,
        parent: InstanceId,
        barrier: BarrierNumber,
        after: Option<InstanceId>,
    ) -> BoxFuture<'_, Result<Page<Child>>> {
        read(self.0.children_page(parent, barrier, after))
    }

    fn endings_page<'a>(&'a self, ids: &'a [InstanceId]) -> BoxFuture<'a, Result<Endings>> {
        read(self.0.endings_page(ids))
    }

    fn commands<'a>(
        &'a self,
        filter: &'a CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> BoxFuture<'a, Result<CommandPage>> {
        read(self.0.commands(filter, before, limit))
    }

    fn records_page<'a>(&'a self, ids: &'a [CommandId]) -> BoxFuture<'a, Result<Records>> {
        read(self.0.records_page(ids))
    }

    fn inbox(&self, id: InstanceId) -> BoxFuture<'_, Result<Vec<Command>>> {
        read(self.0.inbox(id))
    }

    fn events<'a>(
        &'a self,
        filter: &'a EventFilter,
        before: Option<EventSequence>,
        limit: usize,
    ) -> BoxFuture<'a, Result<EventPage>> {
        read(self.0.events(filter, before, limit))
    }

    fn waiters<'a>(
        &'a self,
        filter: &'a WaiterFilter,
        after: Option<(InstanceId, u32)>,
        limit: usize,
    ) -> BoxFuture<'a, Result<WaiterPage>> {
        read(self.0.waiters(filter, after, limit))
    }

    fn contract(&self, id: ContractId) -> BoxFuture<'_, Result<Option<Json>>> {
        read(self.0.contract(id))
    }

    fn contracts_page<'a>(&'a self, ids: &'a [ContractId]) -> BoxFuture<'a, Result<Contracts>> {
        read(self.0.contracts_page(ids))
    }

    fn machines_page(
        &self,
        after: Option<Lane>,
        limit: usize,
    ) -> BoxFuture<'_, Result<MachinePage>> {
        read(self.0.machines_page(after, limit))
    }

    fn document<'a>(
        &'a self,
        kind: DocumentKind,
        name: &'a Name,
    ) -> BoxFuture<'a, Result<Option<Document>>> {
        read(self.0.document(kind, name))
    }

    fn documents_page(
        &self,
        kind: DocumentKind,
        after: Option<Name>,
        limit: usize,
    ) -> BoxFuture<'_, Result<DocumentPage>> {
        read(self.0.documents_page(kind, after, limit))
    }

    fn next_due(&self) -> BoxFuture<'_, Result<Option<Timestamp>>> {
        read(self.0.next_due())
    }

    fn workers(&self) -> BoxFuture<'_, Result<Vec<Worker>>> {
        read(self.0.workers())
    }

    fn depths(&self) -> BoxFuture<'_, Result<Vec<QueueDepth>>> {
        read(self.0.depths())
    }

    fn takes_outbox(&self) -> bool {
        self.0.takes_outbox()
    }

    fn outbox_poll(&self) -> Duration {
        self.0.outbox_poll()
    }

    fn outbox<'a>(
        &'a self,
        passed_over: &'a [OutboxId],
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<OutboxRow>>> {
        read(self.0.outbox(passed_over, limit))
    }

    fn refused(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> BoxFuture<'_, Result<RefusedPage>> {
        read(self.0.refused(before, limit))
    }

    fn outbox_depth(&self) -> BoxFuture<'_, Result<OutboxDepth>> {
        read(self.0.outbox_depth())
    }

    fn ready_lanes(&self) -> BoxFuture<'_, Result<Vec<ReadyLane>>> {
        read(self.0.ready_lanes())
    }

    fn tally(&self) -> BoxFuture<'_, Result<Tally>> {
        read(self.0.tally())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

/// Counts a read if it fails.
fn read<'a, T: Send + 'a>(reading: BoxFuture<'a, Result<T>>) -> BoxFuture<'a, Result<T>> {
    Box::pin(async move {
        let answer = reading.await;
        if let Err(error) = &answer {
            counter!("abide_failed_reads_total", "class" => class(error)).increment(1);
        }
        answer
    })
}

/// Records an attempt at a step: its duration, and `true` if it failed.
pub(crate) fn step(machine: &Name, step: &Name, took: Duration, failed: bool) {
    let machine = label("machine", machine.as_str());
    let labels = [machine.clone(), label("step", step.as_str())];
    histogram!("abide_step_seconds", labels.iter()).record(took);
    let labels = [machine];
    counter!("abide_step_attempts_total", labels.iter()).increment(1);
    if failed {
        counter!("abide_step_failures_total", labels.iter()).increment(1);
    }
}

/// Counts an instance whose failure cannot be stored.
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
