//! The dispatcher: owns the instances that this worker holds, and decides what goes into the next transaction.

mod ending;
mod gather;

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::{
    Claim, Claimed, Committed, InstanceId, Lane, Name, Outcome, Refusal, Then, Timestamp,
};
use abide_core::rules::deaths::{self, MAX_DEATHS, give_up_suspects};
use abide_kernel::committer::{Caller, Commits, Deliveries, Failed, Fault, Intake, Request};
use abide_kernel::{Backoff, ClaimRequest, Effects, Listener};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use super::batch::{Ask, Batch, Failure, Finished, Landed, Sent, search};
use super::builder::Shared;
use super::settings::Crash;
use super::span::attempt;
use super::stats::add;
use super::{Follow, Ran, Runner, Task};
use crate::measured::StepMeter;

/// Requests to the dispatcher.
pub(super) enum Control {
    /// Poll for work now, and reply when none is left and nothing runs.
    WhenIdle(oneshot::Sender<()>),
    /// Poll for work now.
    Poll,
    /// Serve one more queue, with this many slots.
    Serve(Name, usize),
}

/// The number of outcomes, of commands or of free slots that always justifies another transaction beside one in
/// progress.
const SECOND: usize = 64;
/// The time that commands wait for a transaction before they are delivered without the engine. The transactions in
/// progress may be waiting for an unavailable database.
const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

/// A queue that this worker serves.
struct Queue {
    name: Name,
    /// The maximum number of steps that run at a time.
    slots: usize,
    /// The number of slots that are held or requested.
    taken: usize,
    /// `true` if there may be work that was not requested yet.
    hungry: bool,
    /// `true` if the last claim returned as many instances as requested, so that two claims at a time are worthwhile.
    plenty: bool,
    /// The number of wakes. It shows if one arrived while a claim was in progress.
    wakes: u64,
    /// Refused outcomes, with their refusals. Their slots may have been given to others in the same transaction, so
    /// their error handlers may have to wait for a slot.
    refused: VecDeque<(Refusal, Sent)>,
}

impl Queue {
    fn new(name: Name, slots: usize) -> Self {
        Self {
            name,
            slots,
            taken: 0,
            hungry: true,
            plenty: false,
            wakes: 0,
            refused: VecDeque::new(),
        }
    }

    /// Returns the next refused outcome whose error handler has a slot to run in.
    fn next_refused(&mut self) -> Option<(Refusal, Sent)> {
        let running = self.taken.saturating_sub(self.refused.len());
        (running < self.slots)
            .then(|| self.refused.pop_front())
            .flatten()
    }
}

/// State of an instance that this worker holds.
#[derive(Default)]
struct Held {
    /// The number of claims of the instance held here. After a claim is lost, the instance may be claimed again before
    /// the step of the lost claim has ended.
    times: usize,
    /// Cancelled when the instance is cancelled.
    cancelled: CancellationToken,
    /// Notified when a command arrives for the instance.
    command_arrived: Arc<Notify>,
    /// `true` if the answer to a later claim of it may have been lost. That claim is searched for when this one is
    /// over.
    doubted: bool,
    /// `true` if it is at a step that is suspected of killing its workers (rule 5.6).
    is_suspect: bool,
}

/// The start of instances that were claimed together: the time, and the code that the last one needed.
struct Start {
    now: Timestamp,
    last: Option<(Lane, Arc<dyn Runner>)>,
}

impl Start {
    const fn at(now: Timestamp) -> Self {
        Self { now, last: None }
    }

    /// Returns the code for an instance. Most instances of a claim are of one lane, so it is found once.
    fn runner(&mut self, shared: &Shared, claimed: &Claimed) -> Option<Arc<dyn Runner>> {
        if let Some((lane, runner)) = &self.last
            && lane.version == claimed.version
            && lane.machine == claimed.machine
        {
            return Some(runner.clone());
        }
        let lane = Lane {
            machine: claimed.machine.clone(),
            version: claimed.version,
        };
        let runner = shared.runner(&lane)?;
        self.last = Some((lane, runner.clone()));
        Some(runner)
    }
}

pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    notifications: Listener,
    control: mpsc::UnboundedReceiver<Control>,
    finished: mpsc::UnboundedReceiver<Finished>,
    finish: mpsc::UnboundedSender<Finished>,
    queues: Vec<Queue>,
    /// Outcomes that are not committed yet.
    pending: Intake<Commits, Sent>,
    /// Signals and updates that this process sends.
    incoming: mpsc::UnboundedReceiver<Request<Deliveries>>,
    /// Commands that are not delivered yet, and since when the first of them has waited.
    undelivered: Intake<Deliveries, Caller<Deliveries>>,
    undelivered_since: tokio::time::Instant,
    /// `true` if the last transaction delivered commands, so that the next one is for outcomes.
    outcomes_next: bool,
    /// The instances that this worker knows it holds.
    held: HashMap<InstanceId, Held>,
    under_way: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// The number of outcomes and commands in these transactions.
    entries_under_way: usize,
    /// Work that does not occupy a writer: checks of the instances held here, and outcomes in a step's own
    /// transaction or alone.
    beside: FuturesUnordered<BoxFuture<'static, Landed>>,
    checking: bool,
    claims_under_way: usize,
    /// The back-off after a transaction with claims has failed, and when claims may be made again.
    claims_backoff: Backoff,
    claims_from: Option<tokio::time::Instant>,
    /// `true` if claims may be why a transaction failed. Then they share no transaction with others until one succeeds.
    claims_apart: bool,
    /// `true` if claims may exist that are not in `held`.
    unsure: bool,
    /// `true` if the search must run again with the next poll, because a lost transaction may commit after the first
    /// search.
    was_unsure: bool,
    /// `true` while the search for such claims runs. Nothing is claimed meanwhile.
    searching: bool,
    steps: TaskTracker,
    step_meter: StepMeter,
    idlers: Vec<oneshot::Sender<()>>,
    next_poll: Timestamp,
    /// `true` once `first_landed` is cancelled.
    has_landed: bool,
}

impl Dispatcher {
    pub fn new(
        shared: Arc<Shared>,
        notifications: Listener,
        control: mpsc::UnboundedReceiver<Control>,
    ) -> Self {
        let (finish, finished) = mpsc::unbounded_channel();
        let queues = shared.settings.queues.iter();
        let queues = queues.map(|(name, slots)| Queue::new(name.clone(), *slots));
        Self {
            notifications,
            control,
            finished,
            finish,
            queues: queues.collect(),
            pending: Intake::new(shared.settings.batch),
            incoming: shared.commands.engage(),
            undelivered: Intake::new(shared.settings.batch),
            undelivered_since: tokio::time::Instant::now(),
            outcomes_next: false,
            held: HashMap::new(),
            under_way: FuturesUnordered::new(),
            entries_under_way: 0,
            beside: FuturesUnordered::new(),
            checking: false,
            claims_under_way: 0,
            claims_backoff: Backoff::away(),
            claims_from: None,
            claims_apart: false,
            unsure: false,
            was_unsure: false,
            searching: false,
            steps: TaskTracker::new(),
            step_meter: StepMeter::new(),
            idlers: Vec::new(),
            next_poll: shared.clock.now() + shared.settings.poll,
            has_landed: false,
            shared,
        }
    }

    /// Claims, runs and commits until the engine stops. Then finishes what it can and gives the rest back.
    pub async fn run(mut self) {
        let stop = self.shared.stop.clone();
        while !stop.is_cancelled() && !self.shared.kill.is_cancelled() {
            self.send_what_there_is();
            if self.under_way.is_empty() {
                self.note_first_landed();
            }
            self.tell_idlers();
            let rest = self.rest();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.shared.kill.cancelled() => {}
                Some(landed) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.settle(landed);
                    self.note_first_landed();
                }
                Some(landed) = self.beside.next(), if !self.beside.is_empty() => self.settle(landed),
                Some(finished) = self.finished.recv() => self.gather(finished).await,
                Some(command) = self.incoming.recv() => self.gather_commands(command).await,
                () = tokio::time::sleep_until(self.undelivered_since + COMMAND_PATIENCE), if !self.undelivered.is_empty() => {
                    self.return_commands();
                }
                () = tokio::time::sleep_until(rest.unwrap_or_else(tokio::time::Instant::now)), if rest.is_some() => {}
                effects = self.notifications.next() => match effects {
                    Some(effects) => self.hear(&effects),
                    None => break,
                },
                () = self.shared.believed_again.notified() => self.hear(&Effects::anything()),
                Some(request) = self.control.recv() => self.obey(request),
                () = self.shared.clock.sleep_until(self.next_poll) => self.poll(),
            }
        }
        self.finish_up().await;
    }

    fn note_first_landed(&mut self) {
        if !std::mem::replace(&mut self.has_landed, true) {
            self.shared.first_landed.cancel();
        }
    }

    fn hear(&mut self, effects: &Effects) {
        for queue in &mut self.queues {
            if effects.anything || effects.ready.contains(&queue.name) {
                queue.hungry = true;
                queue.wakes += 1;
            }
        }
        for id in &effects.cancelled {
            if let Some(held) = self.held.get(id) {
                held.cancelled.cancel();
            }
        }
        for id in &effects.received {
            if let Some(held) = self.held.get(id) {
                held.command_arrived.notify_one();
            }
        }
        if effects.anything {
            // The notification of a command may have been lost, too.
            self.held
                .values()
                .for_each(|held| held.command_arrived.notify_one());
            self.check_for_ended();
        }
    }

    /// Checks if instances that run here were cancelled elsewhere without a notification.
    fn check_for_ended(&mut self) {
        if self.held.is_empty() || self.checking {
            return;
        }
        self.checking = true;
        let ids: Vec<InstanceId> = self.held.keys().copied().collect();
        let store = self.shared.store.clone();
        let check = async move {
            // After an error, the next poll checks again.
            let ended = store.endings(&ids).await.unwrap_or_default().0;
            Landed {
                checked: true,
                ended: ended.into_iter().map(|ending| ending.id).collect(),
                ..Landed::default()
            }
        };
        self.beside.push(check.boxed());
    }

    fn obey(&mut self, request: Control) {
        match request {
            Control::WhenIdle(reply) => {
                self.hear(&Effects::anything());
                self.idlers.push(reply);
            }
            Control::Poll => self.hear(&Effects::anything()),
            Control::Serve(name, slots) => self.queues.push(Queue::new(name, slots)),
        }
    }

    fn poll(&mut self) {
        let now = self.shared.clock.now();
        if now >= self.next_poll {
            self.next_poll = now + self.shared.settings.poll;
            if std::mem::take(&mut self.was_unsure) {
                self.doubt();
            }
            self.hear(&Effects::anything());
        }
    }

    fn tell_idlers(&mut self) {
        let busy = !self.under_way.is_empty()
            || !self.beside.is_empty()
            || !self.pending.is_empty()
            || !self.undelivered.is_empty()
            || !self.held.is_empty()
            || self.queues.iter().any(|queue| queue.hungry);
        if !busy {
            for idler in self.idlers.drain(..) {
                // A caller that no longer waits needs no reply.
                let _ = idler.send(());
            }
        }
    }

    /// Opens as many transactions as are worthwhile.
    fn send_what_there_is(&mut self) {
        if self.unsure && self.claims_under_way == 0 && !self.searching {
            (self.unsure, self.searching) = (false, true);
            let known = self.held.keys().copied().collect();
            self.under_way
                .push(search(self.shared.clone(), known).boxed());
        }
        while self.under_way.len() < self.shared.store.writers() {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            add(&self.shared.counters.batches, 1);
            if let Some(crash) = &self.shared.settings.crash
                && batch
                    .outcomes
                    .iter()
                    .any(|one| crash(&one.waiter.task, Crash::BeforeCommit))
            {
                self.shared.kill.cancel();
                return;
            }
            self.claims_under_way += batch.claims.len();
            let entries = batch.outcomes.len() + batch.commands.len();
            self.entries_under_way += entries;
            let landing = batch.land(self.shared.clone());
            let landing = async move {
                Landed {
                    entries,
                    ..landing.await
                }
            };
            self.under_way.push(landing.boxed());
        }
    }

    /// The time at which an unavailable database may be tried again.
    fn rest(&self) -> Option<tokio::time::Instant> {
        let now = tokio::time::Instant::now();
        let claims = self
            .claims_from
            .filter(|_| self.queues.iter().any(|queue| queue.hungry));
        let rests = self.pending.wakes_at().into_iter().chain(claims);
        rests.filter(|until| *until > now).min()
    }

    /// The next transaction; empty if none is worthwhile. One beside another is worthwhile if as many entries wait as
    /// are under way: with fewer, a batch would only be split.
    fn next_batch(&mut self) -> Batch {
        let (worth, slots) = match self.under_way.is_empty() {
            true => (1, 1),
            false => (self.entries_under_way.clamp(1, SECOND), SECOND),
        };
        let mut batch = Batch::default();
        let now = tokio::time::Instant::now();
        let may_claim = !self.unsure
            && !self.searching
            && self.claims_from.is_none_or(|from| from <= now)
            && self.shared.is_believed();
        if self.claims_apart && may_claim && self.claims_under_way == 0 {
            self.claim(&mut batch, slots);
            if !batch.is_empty() {
                return batch;
            }
        }
        let resting = self.pending.resting().is_some_and(|until| until > now);
        let pending = if resting { 0 } else { self.pending.len() };
        let commands_first = !self.outcomes_next || pending < worth;
        if self.undelivered.len() >= worth && commands_first {
            self.take_commands(&mut batch);
        } else if pending >= worth {
            self.take_outcomes(&mut batch);
        }
        if may_claim && !self.claims_apart {
            self.claim(&mut batch, slots);
        }
        batch
    }

    /// Adds claims to a transaction. Without entries, it is worthwhile for that many free slots.
    fn claim(&mut self, batch: &mut Batch, worth: usize) {
        let most = self.shared.settings.batch;
        let lanes = self.shared.lanes();
        if lanes.is_empty() {
            // There is no code to run.
            self.queues
                .iter_mut()
                .for_each(|queue| queue.hungry = false);
        }
        if self.shared.stop.is_cancelled() || lanes.is_empty() {
            return;
        }
        for queue in &mut self.queues {
            // Slots that this transaction frees can be claimed in the same transaction.
            let leaving = batch
                .outcomes
                .iter()
                .filter(|one| one.waiter.task.queue == queue.name)
                .filter(|one| one.items.iter().all(|commit| leaves(&commit.outcome)))
                .count();
            let free = (queue.slots + leaving).saturating_sub(queue.taken);
            // Instances that the commands wake are claimed in the same commit.
            let hungry = queue.hungry || !batch.commands.is_empty();
            let busy = !batch.outcomes.is_empty() || !batch.commands.is_empty();
            if hungry && free > 0 && (free >= worth || busy) {
                let limit = free.min(most);
                queue.taken += limit;
                queue.hungry = queue.plenty;
                let request = ClaimRequest {
                    worker: self.shared.worker(),
                    queue: queue.name.clone(),
                    lanes: lanes.clone(),
                    limit,
                    lease: None,
                };
                batch.claims.push(Ask {
                    request,
                    wakes: queue.wakes,
                });
            }
        }
    }

    /// Processes the result of a transaction.
    fn settle(&mut self, landed: Landed) {
        self.claims_under_way -= landed.claims.len();
        self.entries_under_way -= landed.entries;
        if landed.unsure {
            self.was_unsure = true;
            self.doubt();
        }
        self.searching &= !landed.searched;
        self.checking &= !landed.checked;
        for id in &landed.ended {
            if let Some(held) = self.held.get(id) {
                held.cancelled.cancel();
            }
        }
        for sent in &landed.dropped {
            self.let_go(sent);
        }
        if let Some(failure) = landed.failed {
            self.settle_failed(failure);
            return self.ask_handlers();
        }
        if landed.dead {
            return;
        }
        if let Some(crash) = &self.shared.settings.crash
            && landed
                .commits
                .iter()
                .any(|(_, sent)| crash(&sent.task, Crash::AfterCommit))
        {
            self.shared.kill.cancel();
            return;
        }
        if !landed.commits.is_empty() {
            self.pending.landed();
        }
        for (committed, sent) in landed.commits {
            self.settle_one(committed, sent);
        }
        if !landed.claims.is_empty() {
            self.claims_backoff.reset();
            (self.claims_from, self.claims_apart) = (None, false);
        }
        for (ask, claimed) in landed.claims {
            add(&self.shared.counters.claimed, claimed.len());
            if let Some(queue) = self
                .queues
                .iter_mut()
                .find(|queue| queue.name == ask.request.queue)
            {
                queue.taken -= ask.request.limit - claimed.len();
                queue.plenty = claimed.len() == ask.request.limit;
                queue.hungry = queue.plenty || queue.wakes > ask.wakes;
            }
            if self.shared.stop.is_cancelled() {
                self.give_back(claimed);
                continue;
            }
            let mut start = Start::at(self.shared.clock.now());
            for one in self.keep_one_suspect(claimed) {
                self.hold(&one);
                self.begin(one, &mut start);
            }
        }
        if let Some(one) = landed.cleared {
            self.begin(one, &mut Start::at(self.shared.clock.now()));
        }
        self.ask_handlers();
    }

    /// Keeps at most one step that is suspected of killing its workers, and none while one is held here: if that one is
    /// guilty, the others would die with it. The others are given back before the first one runs, and wait again
    /// (rule 5.6). Returns the claims that can run at once.
    fn keep_one_suspect(&mut self, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
        if !claimed.iter().any(|one| self.is_suspect(one)) {
            return claimed;
        }
        let holds_one = self.held.values().any(|held| held.is_suspect);
        let surplus = give_up_suspects(&mut claimed, holds_one, |one| self.is_suspect(one));
        let first = claimed.iter().position(|one| self.is_suspect(one));
        let first = first.map(|at| claimed.remove(at));
        for one in &surplus {
            self.free_slot(&one.queue);
        }
        if let Some(first) = &first {
            self.hold(first).is_suspect = true;
        }
        if surplus.is_empty() {
            let mut start = Start::at(self.shared.clock.now());
            first
                .into_iter()
                .for_each(|one| self.begin(one, &mut start));
        } else {
            self.clear_away(surplus, first);
        }
        claimed
    }

    fn is_suspect(&self, claimed: &Claimed) -> bool {
        // Most instances have no deaths, and need no further check.
        deaths::is_suspected(claimed.deaths, MAX_DEATHS) && {
            let own = claimed.policy.as_ref().and_then(|own| own.max_deaths);
            let lane = Lane {
                machine: claimed.machine.clone(),
                version: claimed.version,
            };
            let declared = || self.shared.runner(&lane)?.declared().ok()?.0.max_deaths;
            let most = own.or_else(declared).unwrap_or(MAX_DEATHS);
            deaths::is_suspected(claimed.deaths, most)
        }
    }

    /// Notes that this worker holds an instance.
    fn hold(&mut self, claimed: &Claimed) -> &mut Held {
        let held = self.held.entry(claimed.claim.id()).or_default();
        held.times += 1;
        held
    }

    /// Starts the step of an instance that was claimed and is held.
    fn begin(&mut self, claimed: Claimed, start: &mut Start) {
        let Some(runner) = start.runner(&self.shared, &claimed) else {
            // Only lanes that have code are claimed.
            tracing::error!(instance = %claimed.claim.id(), machine = %claimed.machine, "claimed without code for it");
            return;
        };
        let held = self.held.entry(claimed.claim.id()).or_default();
        let (claim, task) = Task::of(
            claimed,
            runner,
            held.cancelled.clone(),
            held.command_arrived.clone(),
            start.now,
        );
        self.start(claim, Arc::new(task));
    }

    /// Runs the error handlers of refused outcomes for which there is a slot.
    fn ask_handlers(&mut self) {
        let queues = self.queues.iter_mut();
        let refused = queues.flat_map(|queue| std::iter::from_fn(|| queue.next_refused()));
        for (refusal, sent) in refused.collect::<Vec<_>>() {
            self.ask_again(refusal, sent);
        }
    }

    /// Processes a failed transaction: its entries are kept or separated, and nothing was claimed.
    fn settle_failed(&mut self, failure: Failure) {
        let Failure {
            outcomes,
            commands,
            claims,
            error,
        } = failure;
        self.claims_under_way -= claims.len();
        for ask in &claims {
            let queues = self.queues.iter_mut();
            for queue in queues.filter(|queue| queue.name == ask.request.queue) {
                queue.taken -= ask.request.limit;
                queue.hungry = true;
            }
        }
        if !claims.is_empty() {
            tracing::warn!(%error, "nothing could be claimed; trying again");
            let delay = self.claims_backoff.failed().unwrap_or_default();
            self.claims_from = Some(tokio::time::Instant::now() + delay);
            self.claims_apart |= error.fault() == Fault::Entry;
        }
        if !commands.is_empty() {
            return self.shared.commands.failed(commands, &error);
        }
        if outcomes.is_empty() {
            return;
        }
        let unknown = error.fault() == Fault::Unknown;
        match self.pending.failed(outcomes, error) {
            Failed::Kept => {}
            Failed::Alone(outcomes) if unknown => {
                outcomes.into_iter().for_each(|one| self.repeat(one));
            }
            Failed::Alone(outcomes) => {
                let separated = outcomes.len() - usize::from(outcomes.len() == 1);
                add(&self.shared.counters.separated, separated);
                outcomes.into_iter().for_each(|one| self.separate(one));
            }
            // The store was closed, and everything that is held is lost with it.
            Failed::Over(..) => {}
        }
    }

    fn settle_one(&mut self, committed: Committed, mut sent: Sent) {
        let landed = !matches!(committed, Committed::Stale | Committed::Refused(_));
        sent.task.runner.settled(&sent.task, landed);
        let counters = &self.shared.counters;
        match committed {
            Committed::Kept(claim, inbox) => {
                add(&counters.committed, 1);
                let follows = sent.follows.take().map(|follows| match follows {
                    Follow::Turn { .. } => Follow::Turn { inbox },
                    follows => follows,
                });
                if let Some(held) = self.held.get_mut(&sent.task.id) {
                    // When the instance moves on, its deaths are forgotten.
                    held.is_suspect &= matches!(follows, Some(Follow::Same { .. }));
                }
                match follows {
                    Some(next) => self.start(claim, Arc::new(sent.task.followed_by(next))),
                    // A claim is kept only if something follows.
                    None => self.let_go(&sent),
                }
            }
            Committed::Moved(_) | Committed::Repeated(_) => {
                add(&counters.committed, 1);
                self.let_go(&sent);
            }
            Committed::Stale => {
                add(&counters.stale, 1);
                tracing::warn!(instance = %sent.task.id, step = %sent.task.step, "the claim was lost; the outcome is dropped");
                self.let_go(&sent);
            }
            Committed::Refused(refusal) => {
                add(&counters.refused, 1);
                if let Some(reason) = sent.stopped.clone() {
                    return self.insist(sent, reason, &refusal.to_string());
                }
                let mut queues = self.queues.iter_mut();
                if let Some(queue) = queues.find(|queue| queue.name == sent.task.queue) {
                    // Its error handler runs, and needs a slot.
                    queue.taken += usize::from(!sent.has_slot);
                    sent.has_slot = true;
                    queue.refused.push_back((refusal, sent));
                }
            }
        }
    }

    /// Runs a step in a task of its own.
    fn start(&self, claim: Claim, task: Arc<Task>) {
        let runner = task.runner.clone();
        let code = if task.answers() {
            runner.answer(task.clone())
        } else {
            runner.run(task.clone())
        };
        self.spawn(claim, task, code);
    }

    /// Passes a refused outcome to the error handler. If the refused outcome was the handler's own, the instance is
    /// stopped with both messages (rules 4.2, 5.2: it never loops).
    fn ask_again(&self, refusal: Refusal, sent: Sent) {
        let Sent {
            claim, task, error, ..
        } = sent;
        let code = match error {
            None => task.runner.clone().refused(task.clone(), refusal),
            Some(first) => {
                let reason = format!("{first}; and its error handler failed: {refusal}");
                std::future::ready(Ran {
                    outcome: Outcome::Stop { reason },
                    error: Some(first),
                    within: None,
                })
                .boxed()
            }
        };
        self.spawn(claim, task, code);
    }

    fn spawn(&self, claim: Claim, task: Arc<Task>, code: BoxFuture<'static, Ran>) {
        let (finish, kill) = (self.finish.clone(), self.shared.kill.clone());
        let span = attempt(&task, &self.shared.settings.name);
        let within = span.clone();
        let run = async move {
            let began = Instant::now();
            let ran = tokio::select! {
                biased;
                ran = AssertUnwindSafe(code).catch_unwind() => ran,
                () = kill.cancelled() => return,
            };
            let ran = ran.unwrap_or_else(|_| {
                let reason = "the code that runs steps panicked: this is a bug in abide".to_owned();
                Ran {
                    outcome: Outcome::Stop {
                        reason: reason.clone(),
                    },
                    error: Some(reason),
                    within: None,
                }
            });
            within.record("outcome", ran.outcome.name());
            if let Some(error) = &ran.error {
                within.record("error", error.as_str());
            }
            // The dispatcher has ended only if the worker was killed.
            let _ = finish.send(Finished {
                claim,
                task,
                ran,
                took: began.elapsed(),
            });
        };
        self.steps.spawn(run.instrument(span));
    }

    /// Requests a search for claims whose answer was lost. One of them may be of an instance that is held now, because
    /// an outcome that is being committed can return its instance to the queue, where it can be claimed again. That
    /// claim is found when the older one is released.
    fn doubt(&mut self) {
        self.unsure = true;
        self.held.values_mut().for_each(|held| held.doubted = true);
    }

    /// Releases the claim of an outcome.
    fn let_go(&mut self, sent: &Sent) {
        if let Some(held) = self.held.get_mut(&sent.task.id) {
            held.times -= 1;
            if held.times == 0 {
                self.unsure |= held.doubted;
                self.held.remove(&sent.task.id);
            }
        }
        if sent.has_slot {
            self.free_slot(&sent.task.queue);
        }
    }

    /// Gives up the slot in the queue of a step that no longer runs.
    fn leave_slot(&mut self, sent: &mut Sent) {
        if std::mem::take(&mut sent.has_slot) {
            self.free_slot(&sent.task.queue);
        }
    }

    fn free_slot(&mut self, name: &Name) {
        let queues = self.queues.iter_mut();
        for queue in queues.filter(|queue| queue.name == *name) {
            queue.taken = queue.taken.saturating_sub(1);
        }
    }
}

/// `true` if an outcome certainly ends this worker's claim.
fn leaves(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Next { delay_ms: 0, .. } | Outcome::Answer { .. } => false,
        Outcome::Workflow(turn) => !matches!(turn.then, Then::GoOn { .. }),
        _ => true,
    }
}
