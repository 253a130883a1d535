//! The dispatcher: owns what this worker holds, and decides what goes into the next transaction.

mod ending;
mod gather;

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use abide_core::model::{Claim, Committed, InstanceId, Name, Outcome, Refusal, Then, Timestamp};
use abide_kernel::committer::{Caller, Commits, Failed, Fault, Intake, Mail, Request};
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
use super::{Follow, Ran, Task};

/// What others may ask of the dispatcher.
pub(super) enum Command {
    /// Look for work now, and answer when there is none left and nothing runs.
    WhenIdle(oneshot::Sender<()>),
    /// Look for work now.
    Look,
    /// Serve one more queue, with that many places.
    Serve(Name, usize),
}

/// How many outcomes, or free places, are worth a second transaction beside one that is under way.
const SECOND: usize = 64;
/// How long mail waits for a transaction before it goes another way: those under way may wait for a database that is away.
const MAIL_PATIENCE: Duration = Duration::from_secs(1);

/// One queue, as this worker serves it.
struct Queue {
    name: Name,
    /// How many steps may run at once.
    places: usize,
    /// How many are held, or asked for.
    taken: usize,
    /// Whether there may be work that was not asked for.
    hungry: bool,
    /// Whether the last claim brought all that was asked for, so that asking twice at once is worth it.
    plenty: bool,
    /// Counts the wakes, so that one that comes while a claim is under way is not forgotten.
    wakes: u64,
    /// Outcomes that were refused, and why. Their places may have been given away in the same transaction, so that
    /// their error handlers have to wait for others.
    refused: VecDeque<(Refusal, Sent)>,
}

impl Queue {
    fn new(name: Name, places: usize) -> Self {
        Self {
            name,
            places,
            taken: 0,
            hungry: true,
            plenty: false,
            wakes: 0,
            refused: VecDeque::new(),
        }
    }

    /// The next refused outcome whose error handler has a place to run in.
    fn next_refused(&mut self) -> Option<(Refusal, Sent)> {
        let running = self.taken.saturating_sub(self.refused.len());
        (running < self.places)
            .then(|| self.refused.pop_front())
            .flatten()
    }
}

/// What this worker knows of an instance that it holds.
#[derive(Default)]
struct Held {
    /// How often it was claimed: a claim that was lost may be made anew before the step that it was lost to has ended.
    times: usize,
    /// Cancelled when the instance is.
    cancelled: CancellationToken,
    /// Told when a message comes to it.
    mail: Arc<Notify>,
    /// The answer to a later claim of it may have been lost. It is looked for when this claim is over.
    doubted: bool,
}

pub(super) struct Dispatcher {
    shared: Arc<Shared>,
    news: Listener,
    commands: mpsc::UnboundedReceiver<Command>,
    finished: mpsc::UnboundedReceiver<Finished>,
    finish: mpsc::UnboundedSender<Finished>,
    queues: Vec<Queue>,
    /// What has run and is not committed.
    pending: Intake<Commits, Sent>,
    /// Signals and updates that this process sends.
    letters: mpsc::UnboundedReceiver<Request<Mail>>,
    /// Those that are not delivered, and since when the first of them waits.
    mail: Intake<Mail, Caller<Mail>>,
    mail_since: tokio::time::Instant,
    /// Whether the last transaction delivered mail, and outcomes have their turn.
    outcomes_next: bool,
    /// What this worker knows that it holds.
    held: HashMap<InstanceId, Held>,
    under_way: FuturesUnordered<BoxFuture<'static, Landed>>,
    /// What goes on without taking a writer's place: looks at what runs here, outcomes in a step's own transaction.
    beside: FuturesUnordered<BoxFuture<'static, Landed>>,
    looking: bool,
    claims_under_way: usize,
    /// How soon to claim again after a transaction with claims has failed, and from when on.
    claims_backoff: Backoff,
    claims_from: Option<tokio::time::Instant>,
    /// Whether claims may be why a transaction failed: then they share none with others until one succeeds.
    claims_apart: bool,
    /// Claims may have been made that are not in `held`.
    unsure: bool,
    /// The search is to run once more with the next poll: a lost transaction may be committed after the first search.
    was_unsure: bool,
    /// They are being looked for; nothing is claimed meanwhile.
    searching: bool,
    steps: TaskTracker,
    idlers: Vec<oneshot::Sender<()>>,
    next_poll: Timestamp,
}

impl Dispatcher {
    pub fn new(
        shared: Arc<Shared>,
        news: Listener,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let (finish, finished) = mpsc::unbounded_channel();
        let queues = shared.settings.queues.iter();
        let queues = queues.map(|(name, places)| Queue::new(name.clone(), *places));
        Self {
            news,
            commands,
            finished,
            finish,
            queues: queues.collect(),
            pending: Intake::new(shared.settings.batch),
            letters: shared.mail.engage(),
            mail: Intake::new(shared.settings.batch),
            mail_since: tokio::time::Instant::now(),
            outcomes_next: false,
            held: HashMap::new(),
            under_way: FuturesUnordered::new(),
            beside: FuturesUnordered::new(),
            looking: false,
            claims_under_way: 0,
            claims_backoff: Backoff::away(),
            claims_from: None,
            claims_apart: false,
            unsure: false,
            was_unsure: false,
            searching: false,
            steps: TaskTracker::new(),
            idlers: Vec::new(),
            next_poll: shared.clock.now() + shared.settings.poll,
            shared,
        }
    }

    /// Claims, runs and commits until the engine stops; then finishes what it can and gives the rest back.
    pub async fn run(mut self) {
        let stop = self.shared.stop.clone();
        while !stop.is_cancelled() && !self.shared.kill.is_cancelled() {
            self.send_what_there_is();
            self.tell_idlers();
            let rest = self.rest();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.shared.kill.cancelled() => {}
                Some(landed) = self.under_way.next(), if !self.under_way.is_empty() => self.settle(landed),
                Some(landed) = self.beside.next(), if !self.beside.is_empty() => self.settle(landed),
                Some(finished) = self.finished.recv() => self.gather(finished).await,
                Some(letter) = self.letters.recv() => self.gather_mail(letter).await,
                () = tokio::time::sleep_until(self.mail_since + MAIL_PATIENCE), if !self.mail.is_empty() => {
                    self.hand_mail_back();
                }
                () = tokio::time::sleep_until(rest.unwrap_or_else(tokio::time::Instant::now)), if rest.is_some() => {}
                effects = self.news.next() => match effects {
                    Some(effects) => self.hear(&effects),
                    None => break,
                },
                () = self.shared.believed_again.notified() => self.hear(&Effects::anything()),
                Some(command) = self.commands.recv() => self.obey(command),
                () = self.shared.clock.sleep_until(self.next_poll) => self.poll(),
            }
        }
        self.finish_up().await;
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
        for id in &effects.mailed {
            if let Some(held) = self.held.get(id) {
                held.mail.notify_one();
            }
        }
        if effects.anything {
            // Word of a message may have been lost, too.
            self.held.values().for_each(|held| held.mail.notify_one());
            self.look_for_ended();
        }
    }

    /// Looks whether what runs here was cancelled elsewhere, and nobody said so.
    fn look_for_ended(&mut self) {
        if self.held.is_empty() || self.looking {
            return;
        }
        self.looking = true;
        let ids: Vec<InstanceId> = self.held.keys().copied().collect();
        let store = self.shared.store.clone();
        let look = async move {
            // What cannot be seen now is looked for again with the next poll.
            let ended = store.endings(&ids).await.unwrap_or_default().0;
            Landed {
                looked: true,
                ended: ended.into_iter().map(|ending| ending.id).collect(),
                ..Landed::default()
            }
        };
        self.beside.push(look.boxed());
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::WhenIdle(reply) => {
                self.hear(&Effects::anything());
                self.idlers.push(reply);
            }
            Command::Look => self.hear(&Effects::anything()),
            Command::Serve(name, places) => self.queues.push(Queue::new(name, places)),
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
            || !self.mail.is_empty()
            || !self.held.is_empty()
            || self.queues.iter().any(|queue| queue.hungry);
        if !busy {
            for idler in self.idlers.drain(..) {
                // Who does not wait any more need not be told.
                let _ = idler.send(());
            }
        }
    }

    /// Opens as many transactions as are worth it.
    fn send_what_there_is(&mut self) {
        if self.unsure && self.claims_under_way == 0 && !self.searching {
            (self.unsure, self.searching) = (false, true);
            let known = self.held.keys().copied().collect();
            self.under_way
                .push(search(self.shared.clone(), known).boxed());
        }
        while self.under_way.len() < self.shared.store.writers() {
            let worth = if self.under_way.is_empty() { 1 } else { SECOND };
            let batch = self.next_batch(worth);
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
            self.under_way.push(batch.land(self.shared.clone()).boxed());
        }
    }

    /// When a database that was away may be tried again.
    fn rest(&self) -> Option<tokio::time::Instant> {
        let now = tokio::time::Instant::now();
        let claims = self
            .claims_from
            .filter(|_| self.queues.iter().any(|queue| queue.hungry));
        let rests = self.pending.wakes_at().into_iter().chain(claims);
        rests.filter(|until| *until > now).min()
    }

    fn next_batch(&mut self, worth: usize) -> Batch {
        let mut batch = Batch::default();
        let now = tokio::time::Instant::now();
        let may_claim = !self.unsure
            && !self.searching
            && self.claims_from.is_none_or(|from| from <= now)
            && self.shared.is_believed();
        if self.claims_apart && may_claim && self.claims_under_way == 0 {
            self.claim(&mut batch, worth);
            if !batch.is_empty() {
                return batch;
            }
        }
        let resting = self.pending.resting().is_some_and(|until| until > now);
        let pending = if resting { 0 } else { self.pending.len() };
        let mail_first = !self.outcomes_next || pending < worth;
        if self.mail.len() >= worth && mail_first {
            self.take_mail(&mut batch);
        } else if pending >= worth {
            self.take_outcomes(&mut batch);
        }
        if may_claim && !self.claims_apart {
            self.claim(&mut batch, worth);
        }
        batch
    }

    /// Has a transaction claim, too.
    fn claim(&mut self, batch: &mut Batch, worth: usize) {
        let most = self.shared.settings.batch;
        let lanes = self.shared.lanes();
        if lanes.is_empty() {
            // There is nothing that it could run.
            self.queues
                .iter_mut()
                .for_each(|queue| queue.hungry = false);
        }
        if self.shared.stop.is_cancelled() || lanes.is_empty() {
            return;
        }
        for queue in &mut self.queues {
            // What this very transaction frees can be claimed in it.
            let leaving = batch
                .outcomes
                .iter()
                .filter(|one| one.waiter.task.queue == queue.name)
                .filter(|one| one.items.iter().all(|commit| leaves(&commit.outcome)))
                .count();
            let free = (queue.places + leaving).saturating_sub(queue.taken);
            // What mail wakes is claimed in the same commit.
            let hungry = queue.hungry || !batch.mail.is_empty();
            let busy = !batch.outcomes.is_empty() || !batch.mail.is_empty();
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

    /// Takes in what a transaction came to.
    fn settle(&mut self, landed: Landed) {
        self.claims_under_way -= landed.claims.len();
        if landed.unsure {
            self.was_unsure = true;
            self.doubt();
        }
        self.searching &= !landed.searched;
        self.looking &= !landed.looked;
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
            let now = self.shared.clock.now();
            for one in claimed {
                let held = self.held.entry(one.claim.id()).or_default();
                held.times += 1;
                let (claim, task) = Task::of(one, held.cancelled.clone(), held.mail.clone(), now);
                self.start(claim, Arc::new(task));
            }
        }
        self.ask_handlers();
    }

    /// Has the error handlers run of refused outcomes for which there is a place.
    fn ask_handlers(&mut self) {
        let queues = self.queues.iter_mut();
        let refused = queues.flat_map(|queue| std::iter::from_fn(|| queue.next_refused()));
        for (refusal, sent) in refused.collect::<Vec<_>>() {
            self.ask_again(refusal, sent);
        }
    }

    /// Takes in that a transaction failed: its entries are kept or separated, and nothing was claimed.
    fn settle_failed(&mut self, failure: Failure) {
        let Failure {
            outcomes,
            mail,
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
        if !mail.is_empty() {
            return self.shared.mail.failed(mail, &error);
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
            // The store was closed, and all that is held is lost with it.
            Failed::Over(..) => {}
        }
    }

    fn settle_one(&mut self, committed: Committed, mut sent: Sent) {
        if let Some(runner) = self.shared.runner(&sent.task.lane) {
            let landed = !matches!(committed, Committed::Stale | Committed::Refused(_));
            runner.settled(&sent.task, landed);
        }
        let counters = &self.shared.counters;
        match committed {
            Committed::Kept(claim, inbox) => {
                add(&counters.committed, 1);
                let follows = sent.follows.take().map(|follows| match follows {
                    Follow::Turn { .. } => Follow::Turn { inbox },
                    follows => follows,
                });
                match follows {
                    Some(next) => self.start(claim, Arc::new(sent.task.followed_by(next))),
                    // Only what something follows is ever kept.
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
                    // Its error handler runs, and takes a place.
                    queue.taken += usize::from(!sent.placed);
                    sent.placed = true;
                    queue.refused.push_back((refusal, sent));
                }
            }
        }
    }

    /// Has a step run, in a task of its own.
    fn start(&self, claim: Claim, task: Arc<Task>) {
        let Some(runner) = self.shared.runner(&task.lane) else {
            // Only what there is code for is claimed.
            tracing::error!(instance = %task.id, machine = %task.lane.machine, "claimed without code for it");
            return;
        };
        let code = if task.answers() {
            runner.answer(task.clone())
        } else {
            runner.run(task.clone())
        };
        self.spawn(claim, task, code);
    }

    /// Asks the error handler about an outcome that was refused. When that was the handler's own, there is nobody left
    /// to ask, and the instance is stopped with both messages (rules 4.2, 5.2: it never loops).
    fn ask_again(&self, refusal: Refusal, sent: Sent) {
        let Sent {
            claim, task, error, ..
        } = sent;
        let runner = self.shared.runner(&task.lane);
        let code = match (error, runner) {
            (None, Some(runner)) => runner.refused(task.clone(), refusal),
            (error, _) => {
                let why = refusal.to_string();
                let reason = error.as_ref().map_or_else(
                    || why.clone(),
                    |first| format!("{first}; and its error handler failed: {why}"),
                );
                std::future::ready(Ran {
                    outcome: Outcome::Stop { reason },
                    error: error.or(Some(why)),
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
            // The dispatcher is gone only when the worker was killed.
            let _ = finish.send(Finished {
                claim,
                task,
                ran,
                took: began.elapsed(),
            });
        };
        self.steps.spawn(run.instrument(span));
    }

    /// Has claims looked for whose answer got lost. One of them may be of what is held now: an outcome that is being
    /// committed can put its instance back, to be claimed anew. It is found when the older claim is let go of.
    fn doubt(&mut self) {
        self.unsure = true;
        self.held.values_mut().for_each(|held| held.doubted = true);
    }

    /// Forgets what it held.
    fn let_go(&mut self, sent: &Sent) {
        if let Some(held) = self.held.get_mut(&sent.task.id) {
            held.times -= 1;
            if held.times == 0 {
                self.unsure |= held.doubted;
                self.held.remove(&sent.task.id);
            }
        }
        if sent.placed {
            self.free_place(&sent.task.queue);
        }
    }

    /// Gives up the place in its queue of what does not run any more.
    fn leave_place(&mut self, sent: &mut Sent) {
        if std::mem::take(&mut sent.placed) {
            self.free_place(&sent.task.queue);
        }
    }

    fn free_place(&mut self, name: &Name) {
        let queues = self.queues.iter_mut();
        for queue in queues.filter(|queue| queue.name == *name) {
            queue.taken = queue.taken.saturating_sub(1);
        }
    }
}

/// Whether an outcome surely ends this worker's hold.
fn leaves(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Next { delay_ms: 0, .. } | Outcome::Answer { .. } => false,
        Outcome::Workflow(turn) => !matches!(turn.then, Then::GoOn { .. }),
        _ => true,
    }
}
