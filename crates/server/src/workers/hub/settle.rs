//! What follows from the results of the hub's transactions.

use std::time::Duration;

use abide::model::Name;
use abide_kernel::Error;
use abide_kernel::model::{Claimed, Kind, Lane};
use abide_kernel::rules::leases::{self, renewal};
use axum::http::StatusCode;
use tokio::time::Instant;

use super::Waiting;
use super::runs::{Landed, Sent, WorkFound, may_pass};
use super::task::{TICK, Task};
use crate::http::Problem;

/// How long the hub remembers that a machine is a workflow.
const WORKFLOW: Duration = Duration::from_secs(60);

impl Task {
    pub(super) fn settle(&mut self, landed: Landed) {
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
                    .checked_sub(renewal(leases::REMOTE))
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
                    self.pause.failed();
                }
            }
        }
    }

    /// Pauses requests to the database if the error may be temporary.
    fn rest(&mut self, error: &Error) {
        if may_pass(error) {
            tracing::warn!(%error, "workers cannot be served; trying again");
            self.pause.failed();
        }
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
        self.pause.reset();
        let mut claimed = found.claimed.into_iter();
        for Sent { spot, query, polls } in sent {
            let mut served = Vec::new();
            for ((waiting, id), claims) in polls.into_iter().zip(claimed.by_ref()) {
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
                    served.push((waiting, claims));
                }
            }
            let Some(group) = self.groups.get_mut(&spot) else {
                continue;
            };
            if served.is_empty() {
                group.fail(Vec::new());
                continue;
            }
            for (waiting, claims) in group.settle(query, served) {
                self.deliver(waiting, claims);
            }
        }
    }

    fn settle_failed(&mut self, sent: Sent, error: &Error) {
        let polls = sent.polls.into_iter().map(|(waiting, _)| waiting);
        let (refused, stay): (Vec<Waiting>, Vec<Waiting>) =
            polls.partition(|waiting| waiting.is_once() || !may_pass(error));
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

    pub(super) fn hand(&mut self, waiting: Waiting, claims: Vec<Claimed>) {
        if let Err(Ok(claims)) = waiting.reply.send(Ok(claims)) {
            self.returned
                .extend(claims.into_iter().map(|one| one.claim));
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

pub(super) fn is_workflow(machine: &Name, version: u32) -> Problem {
    Problem::unprocessable(format!(
        "{machine} version {version} is a workflow: its code runs in an engine, not in a worker over HTTP; leave it out of `machines`"
    ))
    .with("reason", "workflow")
}
