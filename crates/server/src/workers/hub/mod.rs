//! The hub of long polls: a task that knows which polls wait for which work, and queries the database only when there
//! may be some.
//!
//! Polls for the same queue and machines form a group. A group that was found empty is queried again only after a
//! notification that its queue has work, or at a slow interval, which backs up lost notifications (rule 6.6). So a
//! thousand idle workers cost as much as one. No poll holds a connection.

mod group;
mod registry;
mod runs;
mod settle;
mod task;

use std::sync::Arc;
use std::time::Duration;

use abide::model::Name;
use abide::store::Store;
use abide_kernel::model::{Claim, Claimed, Lane};
use tokio::sync::{mpsc, oneshot};

use crate::http::Problem;

/// A request for work.
pub struct Poll {
    /// The name of the worker.
    pub worker: Name,
    /// The build of the worker's code, if given.
    pub build: Option<Name>,
    /// The queue.
    pub queue: Name,
    /// The lanes that the worker has code for, sorted.
    pub lanes: Arc<[Lane]>,
    /// Maximum number of claims.
    pub limit: usize,
    /// The lease of each claim.
    pub lease: Duration,
    /// How long to wait for work. If zero, the answer comes after one query.
    pub wait: Duration,
}

/// A poll that waits.
struct Waiting {
    poll: Poll,
    /// Its position in the order of all polls.
    number: usize,
    reply: oneshot::Sender<Result<Vec<Claimed>, Problem>>,
}

impl Waiting {
    /// `true` if it is answered after one query.
    const fn is_once(&self) -> bool {
        self.poll.wait.is_zero()
    }

    /// `true` if its caller has stopped waiting.
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A request to the hub.
enum Request {
    /// Asks for work.
    Poll(Poll, oneshot::Sender<Result<Vec<Claimed>, Problem>>),
    /// Records that a worker is alive.
    Seen(Name),
    /// Removes a worker and its polls.
    Forget(Name),
    /// Gives back claims that no caller took.
    Return(Vec<Claim>),
    /// Ends the hub. Polls are answered with no work.
    End(oneshot::Sender<()>),
}

/// A handle on the hub. Cheap to clone.
#[derive(Clone)]
pub struct Hub(mpsc::UnboundedSender<Request>);

impl Hub {
    /// Starts the task that serves polls.
    pub fn begin(store: Arc<dyn Store>) -> Self {
        let (sender, requests) = mpsc::unbounded_channel();
        // The subscription begins before the first query, so that no notification is missed between the two.
        let listener = store.listen();
        tokio::spawn(task::Task::new(store, listener, requests).run());
        Self(sender)
    }

    /// Waits for work. Returns the claims, or none if the time is up or the server shuts down. Claims for a caller that
    /// has stopped waiting are given back.
    pub async fn poll(&self, poll: Poll) -> Result<Handed, Problem> {
        let (reply, answer) = oneshot::channel();
        let wait = poll.wait;
        let mut answer = Answer {
            answer,
            hub: self.clone(),
        };
        if self.0.send(Request::Poll(poll, reply)).is_err() {
            return Err(Problem::unavailable(
                "the server is shutting down: ask another, or this one when it is back",
            ));
        }
        let claims = if wait.is_zero() {
            (&mut answer.answer).await
        } else {
            match tokio::time::timeout(wait, &mut answer.answer).await {
                Ok(claims) => claims,
                Err(_) => Ok(Ok(Vec::new())),
            }
        };
        match claims {
            Ok(Ok(claims)) => Ok(Handed {
                claims,
                hub: self.clone(),
            }),
            Ok(Err(problem)) => Err(problem),
            // The hub has ended.
            Err(_) => Ok(Handed {
                claims: Vec::new(),
                hub: self.clone(),
            }),
        }
    }

    /// Records that a worker is alive.
    pub fn seen(&self, worker: Name) {
        // If the hub has ended, there is nothing to record.
        let _ = self.0.send(Request::Seen(worker));
    }

    /// Removes a worker that signs off. Its polls are answered with no work.
    pub fn forget(&self, worker: Name) {
        let _ = self.0.send(Request::Forget(worker));
    }

    /// Answers all polls with no work, and waits until claims that were not handed out are given back.
    pub async fn end(&self) {
        let (reply, ended) = oneshot::channel();
        if self.0.send(Request::End(reply)).is_ok() {
            // If the hub has already ended, there is no reply.
            let _ = ended.await;
        }
    }

    fn give_back(&self, claims: Vec<Claim>) {
        if !claims.is_empty() {
            // If the hub has ended, the claims expire (rule 6.4).
            let _ = self.0.send(Request::Return(claims));
        }
    }
}

/// The pending answer to a poll. If it is dropped, because the client has disconnected, claims in it are given back.
struct Answer {
    answer: oneshot::Receiver<Result<Vec<Claimed>, Problem>>,
    hub: Hub,
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(claims)) = self.answer.try_recv() {
            self.hub
                .give_back(claims.into_iter().map(|one| one.claim).collect());
        }
    }
}

/// The claims for a poll. If it is dropped before they are taken, they are given back.
pub struct Handed {
    claims: Vec<Claimed>,
    hub: Hub,
}

impl Handed {
    /// The claims.
    pub fn claims(&self) -> &[Claimed] {
        &self.claims
    }

    /// Takes the claims. From now on they belong to the worker.
    pub fn take(mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.claims)
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        self.hub
            .give_back(claims.into_iter().map(|one| one.claim).collect());
    }
}
