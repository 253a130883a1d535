//! The hub of long polls: a task that knows who waits for what, and asks the database only when there may be something.
//!
//! Polls for the same queue and machines are a group. One that was found empty is not looked at again until word comes that
//! its queue has work, or a slow look is due that is the floor under lost word (rule 6.6): so a thousand idle workers cost what
//! one costs. No poll holds a connection.

mod group;
mod roll;
mod runs;
mod task;

use std::sync::Arc;
use std::time::Duration;

use abide::{Name, Store};
use abide_kernel::Listed;
use abide_kernel::model::{Claim, Claimed, Lane};
use tokio::sync::{mpsc, oneshot};

use crate::http::Problem;

/// A request for work.
pub struct Poll {
    /// Who asks.
    pub worker: Name,
    /// The queue.
    pub queue: Name,
    /// What the worker has code for, sorted.
    pub lanes: Arc<[Lane]>,
    /// At most that many.
    pub limit: usize,
    /// The lease that each claim gets.
    pub lease: Duration,
    /// How long to wait for work; zero to be answered after one look.
    pub wait: Duration,
}

/// A request that waits.
struct Waiting {
    poll: Poll,
    /// Its place among all.
    number: u64,
    reply: oneshot::Sender<Result<Vec<Claimed>, Problem>>,
}

impl Waiting {
    /// Whether it is answered after one look.
    const fn is_once(&self) -> bool {
        self.poll.wait.is_zero()
    }

    /// Whether nobody waits for the answer any more.
    fn is_gone(&self) -> bool {
        self.reply.is_closed()
    }
}

/// What others ask of the hub.
enum Ask {
    /// Work.
    Poll(Poll, oneshot::Sender<Result<Vec<Claimed>, Problem>>),
    /// To note that a worker lives.
    Seen(Name),
    /// To forget a worker, and to let its polls go.
    Forget(Name),
    /// To give claims back that nobody took.
    Return(Vec<Claim>),
    /// To end: polls are answered with nothing.
    End(oneshot::Sender<()>),
}

/// A handle on the hub. Cheap to clone.
#[derive(Clone)]
pub struct Hub(mpsc::UnboundedSender<Ask>);

impl Hub {
    /// Begins to serve polls.
    pub fn begin(store: Arc<dyn Store>) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        // Listening begins before the first look, so that nothing can fall between the two.
        let news = store.listen();
        tokio::spawn(task::Task::new(store, news, asked).run());
        Self(asks)
    }

    /// Waits for work: what was claimed, or nothing when the time is up or the server ends. What is claimed for a caller
    /// that has stopped waiting is given back.
    pub async fn poll(&self, poll: Poll) -> Result<Handed, Problem> {
        let (reply, answer) = oneshot::channel();
        let wait = poll.wait;
        let mut answer = Answer {
            answer,
            hub: self.clone(),
        };
        if self.0.send(Ask::Poll(poll, reply)).is_err() {
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

    /// Notes that a worker lives.
    pub fn seen(&self, worker: Name) {
        // A hub that has ended keeps nobody alive.
        let _ = self.0.send(Ask::Seen(worker));
    }

    /// Forgets a worker that signs off; its polls are answered with nothing.
    pub fn forget(&self, worker: Name) {
        let _ = self.0.send(Ask::Forget(worker));
    }

    /// Answers all polls with nothing, and ends when what was claimed in vain is given back.
    pub async fn end(&self) {
        let (reply, ended) = oneshot::channel();
        if self.0.send(Ask::End(reply)).is_ok() {
            // One that has ended already tells nobody.
            let _ = ended.await;
        }
    }

    fn give_back(&self, claims: Vec<Claim>) {
        if !claims.is_empty() {
            // When the hub has ended, they run out (rule 6.4).
            let _ = self.0.send(Ask::Return(claims));
        }
    }
}

/// The answer to a poll. When nobody takes it, because the client went away, what it brings is given back.
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

/// What was claimed for a poll. When it is dropped before it is taken, it is given back.
pub struct Handed {
    claims: Vec<Claimed>,
    hub: Hub,
}

impl Handed {
    /// What was claimed.
    pub fn claims(&self) -> &[Claimed] {
        &self.claims
    }

    /// Gives back what is more than so many bytes of states, messages and children, but for the first (rule 16.4): the
    /// worker, or another, has it when it asks again. Inboxes of at most so many bytes are sent along whole.
    pub fn keep(&mut self, most: usize, inbox_most: u64) {
        let mut bytes = 0;
        let fits = self.claims.iter().take_while(|one| {
            let messages = one.awaited.iter().chain(&one.updates).map(Listed::bytes);
            let children = one.children.iter().map(Listed::bytes);
            let whole = usize::try_from(one.inbox.bytes).ok();
            let whole = whole.filter(|_| one.inbox.bytes <= inbox_most);
            let messages = messages.sum::<usize>().max(whole.unwrap_or(0));
            bytes += one.state.size() + messages + children.sum::<usize>();
            bytes <= most
        });
        let fitting = fits.count().max(1);
        if fitting < self.claims.len() {
            let rest = self.claims.drain(fitting..).map(|one| one.claim);
            let rest = rest.collect();
            self.hub.give_back(rest);
        }
    }

    /// Takes it: from now on it is the worker's.
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
