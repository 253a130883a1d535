//! Requests that share a transaction.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Folded, Request};
use crate::{Error, Op, Result, Store};

/// Requests that share a transaction.
pub struct Batch<K: Folded> {
    ops: Arc<[Op]>,
    members: Vec<Member<K>>,
}

/// One request of a batch.
struct Member<K: Folded> {
    items: usize,
    until: Instant,
    reply: oneshot::Sender<Result<Vec<K::Each>>>,
}

impl<K: Folded> std::fmt::Debug for Batch<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch({} requests)", self.members.len())
    }
}

impl<K: Folded> Batch<K> {
    /// Puts them together.
    pub fn of(requests: Vec<Request<K>>) -> Self {
        Self::with(requests, Vec::new())
    }

    /// The batch, and other operations that are to follow in the same transaction.
    pub fn with(requests: Vec<Request<K>>, more: Vec<Op>) -> Self {
        let mut items = Vec::with_capacity(requests.iter().map(|one| one.items.len()).sum());
        let members = requests.into_iter().map(|request| {
            let member = Member {
                items: request.items.len(),
                until: request.until,
                reply: request.reply,
            };
            items.extend(request.items);
            member
        });
        let members = members.collect();
        let ops = std::iter::once(K::op(items)).chain(more).collect();
        Self { ops, members }
    }

    /// The operations; the batch itself is the first.
    pub fn ops(&self) -> Arc<[Op]> {
        self.ops.clone()
    }

    /// The requests it was made of.
    pub fn apart(self) -> impl Iterator<Item = Request<K>> {
        let items = self.ops.first().map(K::items).unwrap_or_default();
        let items: Vec<K::Item> = items.iter().map(K::again).collect();
        let mut items = items.into_iter();
        self.members.into_iter().map(move |member| Request {
            items: items.by_ref().take(member.items).collect(),
            until: member.until,
            reply: member.reply,
        })
    }

    /// How many requests there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether somebody will not wait any longer.
    pub(super) fn is_spent(&self, now: Instant) -> bool {
        self.members.iter().any(|member| member.until <= now)
    }

    pub(super) async fn run(&self, store: &Arc<dyn Store>) -> Result<Vec<K::Each>> {
        let answer = store.run(self.ops.clone()).await?.into_iter().next();
        answer
            .and_then(K::answers)
            .ok_or_else(|| Error::Broken("a request was answered with something else".into()))
    }

    /// Gives each request its own of the answers. Who has stopped waiting is not told; what was done is done all the
    /// same.
    pub fn answer(self, answers: Vec<K::Each>) {
        let mut answers = answers.into_iter();
        for member in self.members {
            let own = answers.by_ref().take(member.items).collect();
            let _ = member.reply.send(Ok(own));
        }
    }

    /// Tells each of them what went wrong.
    pub fn fail(self, error: &Error) {
        for member in self.members {
            let _ = member.reply.send(Err(error.again()));
        }
    }
}
