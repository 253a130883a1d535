//! A store whose ids are renamed to the order in which they were first seen: of two stores that do the same, all that
//! is heard and read is then equal.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_core::model::{
    Answered, Awaits, Cancel, Claim, Claimed, Command, CommandId, CommandKind, Commit, Committed,
    Delivered, Entry, Epoch, Event, EventSequence, Family, HistoryEvent, Instance, InstanceId,
    Name, NewCommand, Operated, Operation, OperationWait, Outcome, ParentRef, Published, Refusal,
    ResumeSource, Row, Run, Scopes, Settled, Started, Target, Timestamp, WaitId, WaitKind, Waiter,
    Worker, WorkerId,
};

use super::invariants::history;
use crate::{
    Answer, ClaimRequest, CommandFilter, Cursor, Error, EventFilter, Extension, Filter, Finding,
    Once, Op, QueueDepth, Remembered, Result, Store, Survey, SweepRequest, WaiterFilter,
};

/// A store, and what its ids are called.
pub(super) struct Renamed {
    store: Arc<dyn Store>,
    /// The name by which a server knows its callers.
    caller: Option<String>,
    instances: Numbers,
    workers: Numbers,
    commands: Numbers,
    events: Numbers,
}

/// All that can be read of a store, without histories.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Newest first.
    pub instances: Vec<Instance>,
    /// The records of signals and updates, newest first.
    pub commands: Vec<Command>,
    /// Newest first.
    pub events: Vec<Event>,
    /// The waits for events, by instance and position.
    pub waiters: Vec<Waiter>,
    /// Those that are believed to live.
    pub workers: Vec<Worker>,
    pub depths: Vec<QueueDepth>,
    pub next_due: Option<Timestamp>,
}

impl Renamed {
    pub fn new(store: Arc<dyn Store>, caller: Option<String>) -> Self {
        Self {
            store,
            caller,
            instances: Numbers::default(),
            workers: Numbers::default(),
            commands: Numbers::default(),
            events: Numbers::default(),
        }
    }

    /// Runs operations in one transaction; of an error, what a caller would act on.
    pub async fn run(&mut self, ops: &[Op]) -> Result<Vec<Answer>, String> {
        let ops = ops.iter().map(|op| self.op(op)).collect();
        match self.store.run(ops).await {
            Ok(answers) => Ok(answers.into_iter().map(|one| self.answer(one)).collect()),
            // Each database has a text of its own for it.
            Err(Error::Conflict(_)) => Err("conflict".into()),
            Err(other) => Err(other.to_string()),
        }
    }

    pub async fn rows(&mut self) -> Result<Rows> {
        let page = self
            .store
            .list(&Filter::default(), None, usize::from(u16::MAX))
            .await?;
        let most = usize::from(u16::MAX);
        let all = CommandFilter::default();
        let records = self.store.commands(&all, None, most).await?.items;
        let all = EventFilter::default();
        let events = self.store.events(&all, None, most).await?.items;
        let all = WaiterFilter::default();
        let waiters = self.store.waiters(&all, None, most).await?.items;
        let mut workers = self.store.workers().await?;
        workers.sort_by_key(|worker| worker.id);
        let mut depths = self.store.depths().await?;
        let order = |one: &QueueDepth| {
            (
                one.queue.clone(),
                one.status,
                one.wait_kind.map(WaitKind::code),
            )
        };
        depths.sort_by_key(order);
        Ok(Rows {
            instances: page
                .items
                .into_iter()
                .map(|one| self.instance(one))
                .collect(),
            commands: records.into_iter().map(|one| self.command(one)).collect(),
            events: events.into_iter().map(|one| self.event(one)).collect(),
            waiters: waiters.into_iter().map(|one| self.waiter(one)).collect(),
            workers: workers.into_iter().map(|one| self.worker(one)).collect(),
            depths,
            next_due: self.store.next_due().await?,
        })
    }

    /// The history of an instance that was seen.
    pub async fn history(&mut self, id: InstanceId) -> Result<Vec<Entry>> {
        let entries = history(self.store.as_ref(), self.own_instance(id)).await?;
        Ok(entries.into_iter().map(|one| self.entry(one)).collect())
    }

    /// An operation on renamed ids, as the store is to hear it.
    fn op(&self, op: &Op) -> Op {
        match op {
            Op::Start(starts) => Op::Start(starts.clone()),
            Op::Keep(documents) => Op::Keep(documents.clone()),
            Op::Reserve(reservations) => Op::Reserve(reservations.clone()),
            Op::Declare {
                machines,
                contracts,
            } => Op::Declare {
                machines: machines.clone(),
                contracts: contracts.clone(),
            },
            Op::Publish(publishes) => Op::Publish(publishes.clone()),
            Op::Deliver(deliveries) => Op::Deliver(
                deliveries
                    .iter()
                    .map(|one| self.own_delivery(one))
                    .collect(),
            ),
            Op::Cancel(cancels) => {
                Op::Cancel(cancels.iter().map(|one| self.own_cancel(one)).collect())
            }
            Op::Restart(restarts) => {
                let own =
                    |(target, step): &(Target, _)| (self.own_target(target), Option::clone(step));
                Op::Restart(restarts.iter().map(own).collect())
            }
            Op::Repair(targets) => {
                Op::Repair(targets.iter().map(|one| self.own_target(one)).collect())
            }
            Op::Examine { after, limit } => Op::Examine {
                after: self.own_instance(*after),
                limit: *limit,
            },
            Op::ReleaseBlocked {
                build,
                fresh,
                lanes,
                after,
                limit,
            } => Op::ReleaseBlocked {
                build: build.clone(),
                fresh: *fresh,
                lanes: lanes.clone(),
                after: self.own_instance(*after),
                limit: *limit,
            },
            Op::Claim(request) => Op::Claim(ClaimRequest {
                worker: self.own_worker(request.worker),
                ..request.clone()
            }),
            Op::Commit { commits, serves } => Op::Commit {
                commits: commits.iter().map(|one| self.own_commit(one)).collect(),
                serves: serves.clone(),
            },
            Op::GiveBack(claims) => {
                Op::GiveBack(claims.iter().map(|one| self.own_claim(one)).collect())
            }
            Op::GiveBackExcept {
                worker,
                known,
                limit,
            } => Op::GiveBackExcept {
                worker: self.own_worker(*worker),
                known: known.iter().map(|id| self.own_instance(*id)).collect(),
                limit: *limit,
            },
            Op::Fire { limit } => Op::Fire { limit: *limit },
            Op::PassOver {
                instances,
                name_only,
            } => Op::PassOver {
                instances: instances.iter().map(|id| self.own_instance(*id)).collect(),
                name_only: *name_only,
            },
            Op::Register(worker) => Op::Register(worker.clone()),
            Op::Enlist(worker) => Op::Enlist(worker.clone()),
            Op::Renew { workers, lease } => Op::Renew {
                workers: workers.iter().map(|one| self.own_worker(*one)).collect(),
                lease: *lease,
            },
            Op::Extend(claims) => Op::Extend(
                claims
                    .iter()
                    .map(|one| Extension {
                        claim: self.own_claim(&one.claim),
                        lease: one.lease,
                    })
                    .collect(),
            ),
            Op::SignOffNamed { name, limit } => Op::SignOffNamed {
                name: name.clone(),
                limit: *limit,
            },
            Op::Expire { name } => Op::Expire { name: name.clone() },
            Op::Reclaim { limit } => Op::Reclaim { limit: *limit },
            Op::SignOff { worker, limit } => Op::SignOff {
                worker: self.own_worker(*worker),
                limit: *limit,
            },
            Op::Sweep(request) => Op::Sweep(SweepRequest {
                after: request.after.map(|after| Cursor {
                    id: self.own_instance(after.id),
                    ..after
                }),
                ..*request
            }),
            Op::Survey(page) => Op::Survey(Survey {
                after: self.own_instance(page.after),
                ..*page
            }),
            // No world of these tests has an outbox.
            Op::Outbox(_) => Op::Outbox(Vec::new()),
            Op::Refused { again, .. } => Op::Refused {
                ids: Vec::new(),
                again: *again,
            },
            Op::Once(requests) => Op::Once(
                requests
                    .iter()
                    .map(|one| Once {
                        id: one.id.clone(),
                        ops: one.ops.iter().map(|op| self.op(op)).collect(),
                    })
                    .collect(),
            ),
        }
    }

    fn own_instance(&self, id: InstanceId) -> InstanceId {
        InstanceId(self.instances.own(id.0))
    }

    fn own_target(&self, target: &Target) -> Target {
        match target {
            Target::Id(id) => Target::Id(self.own_instance(*id)),
            Target::Key(key) => Target::Key(key.clone()),
        }
    }

    fn own_delivery(&self, delivery: &NewCommand) -> NewCommand {
        NewCommand {
            target: self.own_target(&delivery.target),
            ..delivery.clone()
        }
    }

    fn own_cancel(&self, cancel: &Cancel) -> Cancel {
        Cancel {
            target: self.own_target(&cancel.target),
            ..cancel.clone()
        }
    }

    fn own_outcome(&self, outcome: &Outcome) -> Outcome {
        let own = |one: &Answered| Answered {
            update_id: self.own_command(one.update_id),
            ..one.clone()
        };
        match outcome {
            Outcome::Answer {
                updates,
                state,
                then,
            } => Outcome::Answer {
                updates: updates.iter().map(own).collect(),
                state: state.clone(),
                then: then.clone(),
            },
            Outcome::Workflow(turn) => {
                let mut turn = turn.clone();
                turn.updates = turn.updates.iter().map(own).collect();
                for taken in &mut turn.takes {
                    taken.id = self.own_command(taken.id);
                }
                for operation in &mut turn.operations {
                    if let Operation::Completed(completed) = operation {
                        completed.message = completed.message.map(|id| self.own_command(id));
                    }
                }
                Outcome::Workflow(turn)
            }
            outcome => outcome.clone(),
        }
    }

    fn own_command(&self, id: CommandId) -> CommandId {
        CommandId(self.commands.own(id.0))
    }

    fn own_worker(&self, id: WorkerId) -> WorkerId {
        WorkerId(self.workers.own(id.0))
    }

    fn own_claim(&self, claim: &Claim) -> Claim {
        let parent = claim.parent().map(|parent| ParentRef {
            id: self.own_instance(parent.id),
            partition: parent.partition.clone(),
        });
        Claim::granted(
            self.own_instance(claim.id()),
            claim.epoch(),
            self.own_worker(claim.worker()),
            claim.partition().cloned(),
            parent,
        )
    }

    fn own_commit(&self, commit: &Commit) -> Commit {
        Commit {
            claim: self.own_claim(&commit.claim),
            outcome: self.own_outcome(&commit.outcome),
            keep: commit.keep,
            took: commit.took,
            error: commit.error.clone(),
        }
    }

    /// The answer of the store, with renamed ids.
    fn answer(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Started(each) => {
                let each = each.into_iter();
                Answer::Started(each.map(|one| one.map(|one| self.started(one))).collect())
            }
            Answer::Claimed(each) => {
                Answer::Claimed(each.into_iter().map(|one| self.claimed(one)).collect())
            }
            Answer::Committed(each) => {
                Answer::Committed(each.into_iter().map(|one| self.committed(one)).collect())
            }
            Answer::Delivered(each) => {
                let each = each.into_iter();
                Answer::Delivered(each.map(|one| self.delivered(one)).collect())
            }
            Answer::Published(each) => {
                let each = each.into_iter();
                Answer::Published(each.map(|one| one.map(|one| self.published(one))).collect())
            }
            Answer::Operated(each) => {
                Answer::Operated(each.into_iter().map(|one| self.operated(one)).collect())
            }
            Answer::Examined {
                count,
                findings,
                next,
            } => Answer::Examined {
                count,
                findings: findings.into_iter().map(|one| self.finding(one)).collect(),
                next: next.map(|next| self.id(next)),
            },
            Answer::Released { count, next } => Answer::Released {
                count,
                next: next.map(|next| self.id(next)),
            },
            Answer::Registered(worker) => Answer::Registered(self.worker(worker)),
            Answer::Swept {
                deleted,
                spared,
                next,
                more,
            } => Answer::Swept {
                deleted,
                spared,
                more,
                next: next.map(|next| Cursor {
                    id: self.id(next.id),
                    ..next
                }),
            },
            Answer::Surveyed { next, deleted } => Answer::Surveyed {
                next: next.map(|next| Survey {
                    after: self.id(next.after),
                    ..next
                }),
                deleted,
            },
            Answer::Renewed { lost } => {
                let mut lost: Vec<_> = lost.into_iter().map(|id| self.worker_id(id)).collect();
                lost.sort_unstable();
                Answer::Renewed { lost }
            }
            Answer::Once(each) => {
                let each = each.into_iter().map(|one| {
                    one.map(|one| Remembered {
                        answers: one
                            .answers
                            .into_iter()
                            .map(|one| self.answer(one))
                            .collect(),
                        ..one
                    })
                });
                Answer::Once(each.collect())
            }
            Answer::Named(ids) => Answer::Named(ids.into_iter().map(|id| self.id(id)).collect()),
            other @ (Answer::Extended(_)
            | Answer::Touched { .. }
            | Answer::Fired { .. }
            | Answer::Outbox { .. }
            | Answer::Done) => other,
        }
    }

    fn id(&mut self, id: InstanceId) -> InstanceId {
        InstanceId(self.instances.see(id.0))
    }

    fn command_id(&mut self, id: CommandId) -> CommandId {
        CommandId(self.commands.see(id.0))
    }

    /// A wait's id is made of an instance's or a record's.
    fn wait_id(&mut self, id: &WaitId) -> WaitId {
        let number = |text: &str| text.parse::<i64>().expect("a wait's id has a number in it");
        let text = id.as_str();
        let renamed = match (text.strip_prefix("wait:"), text.strip_prefix("signal:")) {
            (Some(rest), _) => {
                let (instance, step) = rest.split_once(':').expect("an instance and a step");
                format!("wait:{}:{step}", self.instances.see(number(instance)))
            }
            (None, Some(record)) => format!("signal:{}", self.commands.see(number(record))),
            (None, None) => text.to_owned(),
        };
        WaitId::stored(renamed)
    }

    /// The dedup key of a cancellation is made of the run that was cancelled.
    fn dedup_key(&mut self, kind: CommandKind, key: &Name) -> Name {
        let number = key.as_str().strip_prefix("cancel:");
        match number.filter(|_| kind == CommandKind::Cancel) {
            Some(id) => {
                let id = id.parse::<i64>().expect("the key of a cancellation");
                Name::stored(format!("cancel:{}", self.instances.see(id)))
            }
            None => key.clone(),
        }
    }

    fn command(&mut self, command: Command) -> Command {
        let kind = command.kind;
        let dedup_key = command.dedup_key.as_ref();
        let (mut source, mut claimed_source) =
            (command.source.clone(), command.claimed_source.clone());
        self.sender(&mut source, &mut claimed_source);
        if let (Some(_), Some(id)) = (command.name.event_type(), &mut source) {
            // An event that matched names itself.
            *id = self.event_id(&Name::stored(id.as_str())).to_string();
        }
        Command {
            source,
            claimed_source,
            dedup_key: dedup_key.map(|key| self.dedup_key(kind, key)),
            id: self.command_id(command.id),
            instance: command.instance.map(|id| self.id(id)),
            chain: command.chain.map(|id| self.id(id)),
            wait_id: command.wait_id.as_ref().map(|id| self.wait_id(id)),
            ..command
        }
    }

    /// Puts what a server keeps as the claim of its caller where it stands without a server (rule 7.3).
    fn sender(&self, source: &mut Option<String>, claimed: &mut Option<String>) {
        if source.is_some() && *source == self.caller {
            *source = claimed.take();
        }
    }

    fn delivered(&mut self, answer: Result<Delivered, Refusal>) -> Result<Delivered, Refusal> {
        match answer {
            Ok(delivered) => Ok(Delivered {
                record: delivered
                    .record
                    .map(|record| Box::new(self.command(*record))),
                current: delivered.current.map(|id| self.id(id)),
                ..delivered
            }),
            Err(refusal) => Err(self.refusal(refusal)),
        }
    }

    fn published(&mut self, published: Published) -> Published {
        Published {
            sequence: self.event_sequence(published.sequence),
            event_id: self.event_id(&published.event_id),
            ..published
        }
    }

    fn event_sequence(&mut self, sequence: EventSequence) -> EventSequence {
        EventSequence(self.events.see(sequence.0))
    }

    /// The id of an event that was published without one has a number in it, which is of those that records have.
    fn event_id(&mut self, id: &Name) -> Name {
        let given = id.as_str().strip_prefix("event-");
        match given.and_then(|number| number.parse::<i64>().ok()) {
            Some(number) => Name::stored(format!("event-{}", self.commands.see(number))),
            None => id.clone(),
        }
    }

    fn event(&mut self, event: Event) -> Event {
        Event {
            sequence: self.event_sequence(event.sequence),
            event_id: self.event_id(&event.event_id),
            ..event
        }
    }

    fn waiter(&mut self, waiter: Waiter) -> Waiter {
        Waiter {
            instance: self.id(waiter.instance),
            wait_id: self.wait_id(&waiter.wait_id),
            ..waiter
        }
    }

    fn operated(&mut self, operated: Operated) -> Operated {
        match operated {
            Operated::Cancelled { id, children } => Operated::Cancelled {
                id: self.id(id),
                children,
            },
            Operated::Cancelling { id, children } => Operated::Cancelling {
                id: self.id(id),
                children,
            },
            Operated::Restarted { id, run_number } => Operated::Restarted {
                id: self.id(id),
                run_number,
            },
            Operated::NotCurrent(id) => Operated::NotCurrent(self.id(id)),
            Operated::KeyTaken(id) => Operated::KeyTaken(self.id(id)),
            other => other,
        }
    }

    fn finding(&mut self, finding: Finding) -> Finding {
        Finding {
            instance: self.id(finding.instance),
            command_id: finding.command_id.map(|id| self.command_id(id)),
            ..finding
        }
    }

    fn worker_id(&mut self, id: WorkerId) -> WorkerId {
        WorkerId(self.workers.see(id.0))
    }

    fn started(&mut self, started: Started) -> Started {
        match started {
            Started::New(id) => Started::New(self.id(id)),
            Started::Duplicate(id) => Started::Duplicate(self.id(id)),
        }
    }

    fn claim(&mut self, claim: &Claim) -> Claim {
        let parent = claim.parent().map(|parent| ParentRef {
            id: self.id(parent.id),
            partition: parent.partition.clone(),
        });
        Claim::granted(
            self.id(claim.id()),
            claim.epoch(),
            self.worker_id(claim.worker()),
            claim.partition().cloned(),
            parent,
        )
    }

    fn claimed(&mut self, mut claimed: Claimed) -> Claimed {
        claimed.claim = self.claim(&claimed.claim);
        for child in &mut claimed.children {
            child.id = self.id(child.id);
            child.last_error = child.last_error.take().map(|text| self.error(&text));
        }
        for messages in [&mut claimed.awaited, &mut claimed.updates] {
            let renamed = messages.drain(..).map(|one| self.command(one));
            *messages = renamed.collect();
        }
        claimed
    }

    fn committed(&mut self, committed: Committed) -> Committed {
        match committed {
            Committed::Kept(claim, inbox) => Committed::Kept(self.claim(&claim), inbox),
            Committed::Refused(refusal) => Committed::Refused(self.refusal(refusal)),
            other @ (Committed::Moved(_) | Committed::Repeated(_) | Committed::Stale) => other,
        }
    }

    fn refusal(&mut self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::KeyTaken { holder, key } => Refusal::KeyTaken {
                holder: self.id(holder),
                key,
            },
            other => other,
        }
    }

    /// The text of an error, which may name the instance that holds a key.
    fn error(&mut self, text: &str) -> String {
        const HOLDER: &str = " is taken by instance ";
        let mut parts = text.split(HOLDER);
        let mut renamed = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            let number = number.parse().map_or(0, |id| self.instances.see(id));
            renamed.push_str(&format!("{HOLDER}{number}{rest}"));
        }
        renamed
    }

    fn worker(&mut self, worker: Worker) -> Worker {
        Worker {
            id: self.worker_id(worker.id),
            ..worker
        }
    }

    /// Without the fields that a store on a server does not send.
    fn instance(&mut self, instance: Instance) -> Instance {
        let row = Row {
            scopes: Scopes::NONE,
            lease: None,
            epoch: Epoch::default(),
            settled: Settled::default(),
            attended: Vec::new(),
            folding: Vec::new(),
            family: Family {
                ended: 0,
                ..instance.row.family
            },
            id: self.id(instance.row.id),
            worker: instance.row.worker.map(|id| self.worker_id(id)),
            parent: instance.row.parent.map(|id| self.id(id)),
            awaits: instance.row.awaits.map(|awaits| self.awaits(awaits)),
            last_error: instance.row.last_error.map(|text| self.error(&text)),
            run: Run {
                first: instance.row.run.first.map(|id| self.id(id)),
                ..instance.row.run
            },
            ..instance.row
        };
        Instance { row, ..instance }
    }

    fn awaits(&mut self, awaits: Awaits) -> Awaits {
        Awaits {
            id: awaits.id.as_ref().map(|id| self.wait_id(id)),
            waits: self.waits(awaits.waits),
            resumed: awaits.resumed.map(|source| ResumeSource {
                command_id: source.command_id.map(|id| self.command_id(id)),
                ..source
            }),
            ..awaits
        }
    }

    fn waits(&mut self, waits: Vec<OperationWait>) -> Vec<OperationWait> {
        let renamed = waits.into_iter().map(|wait| OperationWait {
            id: self.wait_id(&wait.id),
            command_id: wait.command_id.map(|id| self.command_id(id)),
            ..wait
        });
        renamed.collect()
    }

    fn entry(&mut self, mut entry: Entry) -> Entry {
        if let HistoryEvent::SignalReceived {
            source,
            claimed_source,
            ..
        }
        | HistoryEvent::UpdateAccepted {
            source,
            claimed_source,
            ..
        }
        | HistoryEvent::CancelRequested {
            source,
            claimed_source,
            ..
        } = &mut entry.what
        {
            self.sender(source, claimed_source);
        }
        match &mut entry.what {
            HistoryEvent::ChildEnded { child: id, .. }
            | HistoryEvent::Continued { run_id: id, .. }
            | HistoryEvent::KeyGivenUp { holder: id, .. } => {
                *id = self.id(*id);
            }
            HistoryEvent::Failed { error } | HistoryEvent::StepFailed { error, .. } => {
                *error = self.error(error);
            }
            HistoryEvent::WaitOpened { wait_id, waits, .. } => {
                *wait_id = wait_id.as_ref().map(|id| self.wait_id(id));
                *waits = self.waits(std::mem::take(waits));
            }
            HistoryEvent::TimedOut { wait_id, .. } => {
                *wait_id = wait_id.as_ref().map(|id| self.wait_id(id));
            }
            HistoryEvent::EventMatched {
                command_id,
                event_id,
                wait_id,
                ..
            } => {
                *command_id = self.command_id(*command_id);
                *event_id = self.event_id(event_id);
                *wait_id = self.wait_id(wait_id);
            }
            HistoryEvent::SignalReceived {
                command_id,
                wait_id,
                ..
            }
            | HistoryEvent::SignalApplied {
                command_id,
                wait_id,
                ..
            } => {
                *command_id = self.command_id(*command_id);
                *wait_id = self.wait_id(wait_id);
            }
            HistoryEvent::SignalDiscarded { command_id: id, .. }
            | HistoryEvent::UpdateAccepted { update_id: id, .. }
            | HistoryEvent::UpdateCompleted { update_id: id, .. }
            | HistoryEvent::UpdateFailed { update_id: id, .. }
            | HistoryEvent::CancelRequested { command_id: id, .. } => *id = self.command_id(*id),
            HistoryEvent::HandedAgain {
                run_id, signals, ..
            } => {
                *run_id = self.id(*run_id);
                for signal in signals {
                    signal.command_id = self.command_id(signal.command_id);
                    signal.copy_of = self.command_id(signal.copy_of);
                }
            }
            HistoryEvent::OperationCompleted(completed) => {
                completed.message = completed.message.map(|id| self.command_id(id));
            }
            _ => {}
        }
        entry
    }
}

/// The numbers 1, 2, 3 … for ids, in the order in which these were first seen.
#[derive(Default)]
struct Numbers {
    numbers: BTreeMap<i64, i64>,
    own: Vec<i64>,
}

impl Numbers {
    fn see(&mut self, own: i64) -> i64 {
        *self.numbers.entry(own).or_insert_with(|| {
            self.own.push(own);
            self.own.len() as i64
        })
    }

    /// The store's own id for a number; 0 for none.
    fn own(&self, number: i64) -> i64 {
        match number {
            0 => 0,
            number => self.own[number as usize - 1],
        }
    }
}
