//! The task of the hub: decides what to request from the database, and distributes the results.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use abide::model::Name;
use abide::store::Store;
use abide_kernel::model::{Claim, Claimed, Kind, Lane};
use abide_kernel::{Backoff, Effects, Error, Listener};
use axum::http::StatusCode;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::group::{Group, Spot};
use super::registry::{self, Roll};
use super::runs::{
    Landed, Sent, WorkFound, enlist, find_work, give_back, may_pass, release, renew,
};
use super::{Request, Waiting};
use crate::http::Problem;

/// Maximum number of concurrent transactions of the hub.
const RUNS_MAX: usize = 4;
/// Maximum number of polls that one transaction serves.
const POLLS_MAX: usize = 64;
/// Maximum number of workers that one transaction enlists.
const STRANGERS_MAX: usize = 200;
/// Maximum number of claims that one transaction gives back.
const RETURNS_MAX: usize = 500;
/// How often timeouts are checked.
const TICK: Duration = Duration::from_secs(1);
/// How long the hub remembers that a machine is a workflow.
const WORKFLOW: Duration = Duration::from_secs(60);

pub(super) struct Task {
    store: Arc<dyn Store>,
    listener: Listener,
    requests: mpsc::UnboundedReceiver<Request>,
    roll: Roll,
    groups: HashMap<Spot, Group>,
    /// Machines that were found to be workflows, and until when that is remembered.
    workflows: HashMap<Lane, Instant>,
    /// Claims that no caller took, to be given back.
    returned: Vec<Claim>,
    under_way: FuturesUnordered<BoxFuture<'static, Landed>>,
    enlisting: bool,
    returning: bool,
    /// `true` if some builds could not run an instance that workers of other builds may be able to run (rule 12.4).
    releases: bool,
    releasing: bool,
    renewed: Instant,
    /// No requests to the database until then, because it was unavailable.
    trouble: Option<Instant>,
    backoff: Backoff,
    /// The number of the next poll.
    number: u64,
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
            trouble: None,
            backoff: Backoff::away(),
            number: 0,
            ending: None,
        }
    }

    /// Serves polls until the hub is asked to end, or no handle on it is left.
    pub async fn run(mut self) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while self.ending.is_none() {
            self.send_what_there_is();
            let trouble = self.trouble;
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
                () = tokio::time::sleep_until(trouble.unwrap_or_else(Instant::now)), if trouble.is_some() => {
                    self.trouble = None;
                }
                _ = tick.tick() => self.tick(),
            }
        }
        self.finish().await;
    }

    /// Takes all requests that have arrived. Yields first, so that callers that are about to send a request can share
    /// the transaction; it never waits for a clock.
    async fn gather(&mut self) {
        let mut before = self.number.wrapping_sub(1);
        while self.number != before {
            before = self.number;
            tokio::task::yield_now().await;
            while let Ok(request) = self.requests.try_recv() {
                self.take(request);
            }
        }
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
    fn add_poll(&mut self, waiting: Waiting) {
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
                .filter(|(spot, _)| effects.anything || effects.ready.contains(&spot.queue))
                .for_each(|(_, group)| group.wake());
        }
    }

    fn tick(&mut self) {
        self.groups.values_mut().for_each(Group::tick);
        self.groups.retain(|_, group| !group.is_over());
        let now = Instant::now();
        self.workflows.retain(|_, until| *until > now);
        if self.renewed.elapsed() >= registry::RENEWAL {
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
        if self.trouble.is_some() {
            return;
        }
        if !self.returned.is_empty() && !self.returning {
            self.returning = true;
            let some = self.returned.len().min(RETURNS_MAX);
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
        let mut wanting: Vec<(u64, Spot)> = Vec::new();
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
            let query = group.query(left, self.number);
            // Workers with polls in a group are normally enlisted. Those that no longer are must be enlisted again.
            let (mut taken, mut ids) = (Vec::new(), Vec::new());
            let mut strangers = Vec::new();
            let (query, polls) = query.split();
            for waiting in polls {
                match self.roll.id(&waiting.poll) {
                    Some(id) => {
                        ids.push(id);
                        taken.push(waiting);
                    }
                    None => strangers.push(waiting),
                }
            }
            left -= taken.len();
            if taken.is_empty() {
                group.fail(Vec::new());
            } else {
                sent.push(Sent {
                    spot,
                    query: query.with(taken),
                    ids,
                });
            }
            strangers
                .into_iter()
                .for_each(|waiting| self.roll.arrive(waiting));
        }
        sent
    }

    fn settle(&mut self, landed: Landed) {
        match landed {
            Landed::WorkFound(sent, Ok(found)) => self.settle_queries(sent, found),
            Landed::WorkFound(sent, Err(error)) => {
                for one in sent {
                    self.settle_failed(one, &error);
                }
                self.rest(&error);
            }
            Landed::Enlisted(_, Ok(workers)) => {
                self.enlisting = false;
                for waiting in self.roll.welcome(workers) {
                    self.add_poll(waiting);
                }
            }
            Landed::Enlisted(names, Err(error)) => {
                self.enlisting = false;
                if !may_pass(&error) {
                    for waiting in self.roll.turn_away(&names) {
                        refuse(waiting, &error);
                    }
                }
                self.rest(&error);
            }
            Landed::Renewed(Ok(lost)) => {
                for name in self.roll.lose(&lost) {
                    self.enlist_again(&name);
                }
            }
            Landed::Renewed(Err(error)) => {
                // Tried again soon, because a worker that is not renewed is considered dead.
                self.renewed = Instant::now()
                    .checked_sub(registry::RENEWAL)
                    .unwrap_or_else(Instant::now)
                    + TICK;
                self.rest(&error);
            }
            Landed::Released(released) => {
                self.releasing = false;
                if let Err(error) = released {
                    // Any other error occurs again with the next renewal, and is logged each time.
                    self.releases |= may_pass(&error);
                    tracing::warn!(%error, "blocked instances could not be released; trying again later");
                    self.rest(&error);
                }
            }
            Landed::Returned(left) => {
                self.returning = false;
                if !left.is_empty() {
                    self.returned.extend(left);
                    self.pause();
                }
            }
        }
    }

    /// Pauses requests to the database if the error may be temporary.
    fn rest(&mut self, error: &Error) {
        if may_pass(error) {
            tracing::warn!(%error, "workers cannot be served; trying again");
            self.pause();
        }
    }

    fn pause(&mut self) {
        let delay = self.backoff.failed().unwrap_or_default();
        self.trouble = Some(Instant::now() + delay);
    }

    /// Lets the polls of a worker wait until it is enlisted again.
    fn enlist_again(&mut self, worker: &Name) {
        let polls: Vec<Waiting> = self
            .groups
            .values_mut()
            .flat_map(|group| group.leave(worker))
            .collect();
        polls
            .into_iter()
            .for_each(|waiting| self.roll.arrive(waiting));
    }

    fn settle_queries(&mut self, sent: Vec<Sent>, found: WorkFound) {
        self.backoff.reset();
        let mut claimed = found.claimed.into_iter();
        for Sent { spot, query, ids } in sent {
            let brought: Vec<Vec<Claimed>> = claimed.by_ref().take(ids.len()).collect();
            let (query, polls) = query.split();
            let (mut taken, mut kept) = (Vec::new(), Vec::new());
            for ((waiting, id), claims) in polls.into_iter().zip(ids).zip(brought) {
                if found.lost.contains(&id) {
                    // The worker died, or signed off at another server. Claims that were made under its number do not
                    // belong to it.
                    self.returned
                        .extend(claims.into_iter().map(|one| one.claim));
                    self.roll.lose(&[id]);
                    self.enlist_again(&waiting.poll.worker);
                    self.roll.arrive(waiting);
                } else if !self.roll.is(&waiting.poll.worker, id) {
                    // The worker signed off at this server meanwhile.
                    self.returned
                        .extend(claims.into_iter().map(|one| one.claim));
                    self.hand(waiting, Vec::new());
                } else {
                    taken.push(waiting);
                    kept.push(claims);
                }
            }
            let Some(group) = self.groups.get_mut(&spot) else {
                continue;
            };
            if taken.is_empty() {
                group.fail(Vec::new());
                continue;
            }
            for (waiting, claims) in group.settle(query.with(taken), kept) {
                self.deliver(waiting, claims);
            }
        }
    }

    fn settle_failed(&mut self, sent: Sent, error: &Error) {
        let (_, polls) = sent.query.split();
        let (once, patient) = polls.into_iter().partition(Waiting::is_once);
        let (mut refused, mut stay): (Vec<Waiting>, Vec<Waiting>) = (once, patient);
        if !may_pass(error) {
            refused.append(&mut stay);
        }
        refused
            .into_iter()
            .for_each(|waiting| refuse(waiting, error));
        if let Some(group) = self.groups.get_mut(&sent.spot) {
            group.fail(stay);
        }
    }

    /// Hands claims to a poll. Claims that only an engine can run are given back.
    fn deliver(&mut self, waiting: Waiting, claims: Vec<Claimed>) {
        let (workflows, claims): (Vec<_>, Vec<_>) = claims
            .into_iter()
            .partition(|one| one.kind == Kind::Workflow);
        let Some(first) = workflows.first() else {
            return self.hand(waiting, claims);
        };
        let problem = is_workflow(&first.machine, first.version);
        for one in workflows {
            tracing::warn!(machine = %one.machine, worker = %waiting.poll.worker, "a worker over HTTP asked for a workflow");
            let lane = Lane {
                machine: one.machine,
                version: one.version,
            };
            self.workflows.insert(lane, Instant::now() + WORKFLOW);
            self.returned.push(one.claim);
        }
        match claims.is_empty() {
            true => drop(waiting.reply.send(Err(problem))),
            false => self.hand(waiting, claims),
        }
    }

    fn hand(&mut self, waiting: Waiting, claims: Vec<Claimed>) {
        if let Err(Ok(claims)) = waiting.reply.send(Ok(claims)) {
            self.returned
                .extend(claims.into_iter().map(|one| one.claim));
        }
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
                    let polls = sent.into_iter().flat_map(|one| one.query.split().1);
                    polls.for_each(|waiting| drop(waiting.reply.send(Ok(Vec::new()))));
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

fn refuse(waiting: Waiting, error: &Error) {
    let problem = match error {
        Error::Refused(refusal) => Problem::from(refusal.clone()),
        Error::Conflict(_) | Error::Unavailable(_) | Error::Unknown(_) | Error::Closed => {
            Problem::unavailable(error.to_string())
        }
        other => Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "broken",
            other.to_string(),
        ),
    };
    // A caller that has stopped waiting gets no answer.
    let _ = waiting.reply.send(Err(problem));
}

fn is_workflow(machine: &Name, version: u32) -> Problem {
    Problem::unprocessable(format!(
        "{machine} version {version} is a workflow: its code runs in an engine, not in a worker over HTTP; leave it out of `machines`"
    ))
    .with("reason", "workflow")
}
