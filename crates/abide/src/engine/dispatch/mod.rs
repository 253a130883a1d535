//! The dispatcher: owns the instances that this worker holds, and decides what goes into the next transaction.

mod alone;
mod batch;
mod ending;
mod gather;
mod held;
mod queue;
mod settle;
mod steps;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{InstanceId, Name, Timestamp};
use abide_kernel::committer::{Caller, Commits, Deliveries, Intake, Request};
use abide_kernel::{Backoff, Effects, Listener, Pause};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::builder::Shared;
use crate::measured::StepMeter;
use batch::{Landed, Size};
use held::Held;
use queue::Queue;
use steps::{Finished, Sent};

/// Requests to the dispatcher.
pub(super) enum Control {
    /// Poll for work now, and reply when none is left and nothing runs.
    WhenIdle(oneshot::Sender<()>),
    /// Poll for work now.
    Poll,
    /// Serve one more queue, with this many slots.
    Serve(Name, usize),
}

/// The time that commands wait for a transaction before they are delivered without the engine. The transactions in
/// progress may be waiting for an unavailable database.
const COMMAND_PATIENCE: Duration = Duration::from_secs(1);

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
    undelivered_since: Instant,
    /// `true` if the last transaction delivered commands, so that the next one is for outcomes.
    outcomes_next: bool,
    /// The instances that this worker knows it holds.
    held: HashMap<InstanceId, Held>,
    under_way: FuturesUnordered<BoxFuture<'static, (Size, Landed)>>,
    /// The number of outcomes and commands in these transactions.
    entries_under_way: usize,
    /// Work that does not occupy a writer: checks of the instances held here, and outcomes in a step's own
    /// transaction or alone.
    beside: FuturesUnordered<BoxFuture<'static, Landed>>,
    checking: bool,
    claims_under_way: usize,
    /// The pause after a transaction with claims has failed.
    claims_pause: Pause,
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
            undelivered_since: Instant::now(),
            outcomes_next: false,
            held: HashMap::new(),
            under_way: FuturesUnordered::new(),
            entries_under_way: 0,
            beside: FuturesUnordered::new(),
            checking: false,
            claims_under_way: 0,
            claims_pause: Pause::new(Backoff::away()),
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
            let rest = self.rest();
            self.send_what_there_is();
            if self.under_way.is_empty() {
                self.note_first_landed();
            }
            self.tell_idlers();
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = self.shared.kill.cancelled() => {}
                Some((size, landed)) = self.under_way.next(), if !self.under_way.is_empty() => {
                    self.settle_batch(size, landed);
                    self.note_first_landed();
                }
                Some(landed) = self.beside.next(), if !self.beside.is_empty() => self.settle(landed),
                Some(finished) = self.finished.recv() => self.gather(finished).await,
                Some(command) = self.incoming.recv() => self.gather_commands(command).await,
                () = tokio::time::sleep_until(self.undelivered_since + COMMAND_PATIENCE), if !self.undelivered.is_empty() => {
                    self.return_commands();
                }
                () = tokio::time::sleep_until(rest.unwrap_or_else(Instant::now)), if rest.is_some() => {}
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
            if effects.wakes(&queue.name) {
                queue.demand.wake();
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
            || self.queues.iter().any(|queue| queue.demand.is_hungry());
        if !busy {
            for idler in self.idlers.drain(..) {
                // A caller that no longer waits needs no reply.
                let _ = idler.send(());
            }
        }
    }
}
