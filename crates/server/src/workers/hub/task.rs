//! The task of the hub: decides what to request from the database.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use abide::model::Name;
use abide::store::Store;
use abide_kernel::committer::gather;
use abide_kernel::model::{AT_ONCE, Claim, Lane};
use abide_kernel::rules::leases::{self, renewal};
use abide_kernel::{Backoff, Effects, Listener, Pause};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::group::{Group, Spot};
use super::registry::Roll;
use super::runs::{Landed, Sent, enlist, find_work, give_back, release, renew};
use super::settle::is_workflow;
use super::{Request, Waiting};

/// Maximum number of concurrent transactions of the hub.
const RUNS_MAX: usize = 4;
/// Maximum number of polls that one transaction serves.
const POLLS_MAX: usize = 64;
/// Maximum number of workers that one transaction enlists.
const STRANGERS_MAX: usize = 200;
/// How often timeouts are checked.
pub(super) const TICK: Duration = Duration::from_secs(1);

pub(super) struct Task {
    store: Arc<dyn Store>,
    listener: Listener,
    requests: mpsc::UnboundedReceiver<Request>,
    pub(super) roll: Roll,
    pub(super) groups: HashMap<Spot, Group>,
    /// Machines that were found to be workflows, and until when that is remembered.
    pub(super) workflows: HashMap<Lane, Instant>,
    /// Claims that no caller took, to be given back.
    pub(super) returned: Vec<Claim>,
    under_way: FuturesUnordered<BoxFuture<'static, Landed>>,
    pub(super) enlisting: bool,
    pub(super) returning: bool,
    /// `true` if some builds could not run an instance that workers of other builds may be able to run (rule 12.4).
    pub(super) releases: bool,
    pub(super) releasing: bool,
    pub(super) renewed: Instant,
    /// No requests to the database meanwhile, because it was unavailable.
    pub(super) pause: Pause,
    /// The number of the next poll.
    number: usize,
    /// Gets a reply when the task has ended.
    ending: Option<oneshot::Sender<()>>,
}

impl Task {
    pub fn new(
        store: Arc<dyn Store>,
        listener: Listener,
        requests: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        Self {
            store,
            listener,
            requests,
            roll: Roll::default(),
            groups: HashMap::new(),
            workflows: HashMap::new(),
            returned: Vec::new(),
            under_way: FuturesUnordered::new(),
            enlisting: false,
            returning: false,
            releases: false,
            releasing: false,
            renewed: Instant::now(),
            pause: Pause::new(Backoff::away()),
            number: 0,
            ending: None,
        }
    }

    /// Serves polls until the hub is asked to end, or no handle on it is left.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.ending.is_none() {
            let pause = self.pause.until();
            if pause.is_none() {
                self.send_what_there_is();
            }
            tokio::select! {
                request = self.requests.recv() => match request {
                    Some(request) => {
                        self.take(request);
                        self.gather().await;
                    }
                    None => break,
                },
                Some(landed) = self.under_way.next(), if !self.under_way.is_empty() => self.settle(landed),
                effects = self.listener.next() => match effects {
                    Some(effects) => self.handle(&effects),
                    None => break,
                },
                () = tokio::time::sleep_until(pause.unwrap_or_else(Instant::now)), if pause.is_some() => {}
                _ = tick.tick() => self.tick(),
            }
        }
        self.finish().await;
    }

    /// Takes all requests that have arrived. Callers that are about to send a poll can share the transaction.
    async fn gather(&mut self) {
        let before = self.number;
        gather(usize::MAX, || {
            while let Ok(request) = self.requests.try_recv() {
                self.take(request);
            }
            // The request that woke the task counts, whatever it is.
            1 + self.number - before
        })
        .await;
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Poll(poll, reply) => {
                self.roll.see(&poll.worker);
                let number = self.number;
                self.number += 1;
                self.add_poll(Waiting {
                    poll,
                    number,
                    reply,
                });
            }
            Request::Seen(worker) => self.roll.see(&worker),
            Request::Forget(worker) => {
                self.roll.forget(&worker);
                let mut polls = self.roll.turn_away(std::slice::from_ref(&worker));
                polls.extend(
                    self.groups
                        .values_mut()
                        .flat_map(|group| group.leave(&worker)),
                );
                polls
                    .into_iter()
                    .for_each(|waiting| self.hand(waiting, Vec::new()));
            }
            Request::Return(claims) => self.returned.extend(claims),
            Request::End(reply) => self.ending = Some(reply),
        }
    }

    /// Puts a poll into its group if its worker is enlisted. Otherwise it waits for that.
    pub(super) fn add_poll(&mut self, waiting: Waiting) {
        if let Some(lane) = waiting.poll.lanes.first()
            && waiting
                .poll
                .lanes
                .iter()
                .all(|lane| self.workflows.contains_key(lane))
        {
            // A caller that has stopped waiting gets no answer.
            let problem = is_workflow(&lane.machine, lane.version);
            return drop(waiting.reply.send(Err(problem)));
        }
        if self.roll.id(&waiting.poll).is_none() {
            return self.roll.arrive(waiting);
        }
        let spot = Spot {
            queue: waiting.poll.queue.clone(),
            lanes: waiting.poll.lanes.clone(),
            build: waiting.poll.build.clone(),
        };
        self.groups
            .entry(spot)
            .or_insert_with(Group::new)
            .join(waiting);
    }

    fn handle(&mut self, effects: &Effects) {
        self.releases |= effects.blocked || effects.anything;
        if effects.anything || !effects.ready.is_empty() {
            let groups = self.groups.iter_mut();
            groups
                .filter(|(spot, _)| effects.wakes(&spot.queue))
                .for_each(|(_, group)| group.wake());
        }
    }

    fn tick(&mut self) {
        self.groups.values_mut().for_each(Group::tick);
        self.groups.retain(|_, group| !group.is_over());
        let now = Instant::now();
        self.workflows.retain(|_, until| *until > now);
        if self.renewed.elapsed() >= renewal(leases::REMOTE) {
            self.renewed = now;
            // Backs up lost notifications.
            self.releases = true;
            let waiting: HashSet<Name> = self
                .groups
                .values()
                .flat_map(Group::workers)
                .cloned()
                .collect();
            let living = self.roll.living(&waiting);
            if !living.is_empty() {
                self.under_way
                    .push(renew(self.store.clone(), living).boxed());
            }
        }
    }

    /// Starts the transactions that there is work for, up to the limit.
    fn send_what_there_is(&mut self) {
        if !self.returned.is_empty() && !self.returning {
            self.returning = true;
            let some = self.returned.len().min(AT_ONCE);
            let claims = self.returned.drain(..some).collect();
            self.under_way
                .push(give_back(self.store.clone(), claims).boxed());
        }
        if !self.enlisting {
            let strangers = self.roll.strangers(STRANGERS_MAX);
            if !strangers.is_empty() {
                self.enlisting = true;
                self.under_way
                    .push(enlist(self.store.clone(), strangers).boxed());
            }
        }
        if self.releases && !self.releasing {
            self.releases = false;
            let builds = self.roll.builds();
            if !builds.is_empty() {
                self.releasing = true;
                self.under_way
                    .push(release(self.store.clone(), builds).boxed());
            }
        }
        while self.under_way.len() < RUNS_MAX {
            let sent = self.next_queries();
            if sent.is_empty() {
                return;
            }
            let workflows = self.workflows.keys().cloned().collect();
            self.under_way
                .push(find_work(self.store.clone(), sent, workflows).boxed());
        }
    }

    /// The queries of the next transaction: for the groups whose polls have waited longest.
    fn next_queries(&mut self) -> Vec<Sent> {
        let mut wanting: Vec<(usize, Spot)> = Vec::new();
        for (spot, group) in &self.groups {
            if group.wants_query()
                && let Some(first) = group.first()
            {
                wanting.push((first, spot.clone()));
            }
        }
        wanting.sort_unstable();
        let mut left = POLLS_MAX;
        let mut sent = Vec::new();
        for (_, spot) in wanting {
            let Some(group) = self.groups.get_mut(&spot) else {
                continue;
            };
            if left == 0 {
                break;
            }
            let (query, waiting) = group.query(left, self.number);
            // Workers with polls in a group are normally enlisted. Those that no longer are must be enlisted again.
            let mut polls = Vec::new();
            for one in waiting {
                match self.roll.id(&one.poll) {
                    Some(id) => polls.push((one, id)),
                    None => self.roll.arrive(one),
                }
            }
            left -= polls.len();
            if polls.is_empty() {
                group.fail(Vec::new());
            } else {
                sent.push(Sent { spot, query, polls });
            }
        }
        sent
    }

    /// Answers all waiting polls with no work, and gives back the claims that were not handed out.
    async fn finish(mut self) {
        let groups = self.groups.values_mut();
        let mut polls: Vec<Waiting> = groups.flat_map(Group::empty).collect();
        polls.extend(self.roll.empty());
        polls
            .into_iter()
            .for_each(|waiting| self.hand(waiting, Vec::new()));
        while let Some(landed) = self.under_way.next().await {
            match landed {
                Landed::WorkFound(sent, found) => {
                    let claimed = found.map_or_else(|_| Vec::new(), |found| found.claimed);
                    self.returned
                        .extend(claimed.into_iter().flatten().map(|one| one.claim));
                    let polls = sent.into_iter().flat_map(|one| one.polls);
                    polls.for_each(|(waiting, _)| drop(waiting.reply.send(Ok(Vec::new()))));
                }
                Landed::Returned(left) => self.returned.extend(left),
                Landed::Enlisted(..) | Landed::Renewed(_) | Landed::Released(_) => {}
            }
        }
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            if let Request::Return(claims) = request {
                self.returned.extend(claims);
            }
        }
        if !self.returned.is_empty() {
            // Claims that cannot be given back now expire (rule 6.4).
            give_back(self.store.clone(), std::mem::take(&mut self.returned)).await;
        }
        if let Some(reply) = self.ending.take() {
            let _ = reply.send(());
        }
    }
}
