//! Limits on concurrent requests and on bytes of request bodies. Each kind of request has a budget of its own for each
//! role, and one token gets at most half of it, so that none can shut out the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide::model::Name;
use axum::http::{Method, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Caller, Problem};
use crate::auth::Role;

/// The kind of a request, which determines its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read,
    /// A start, a command, an event, or an operation.
    Write,
    /// A request of a worker.
    Work,
    /// A webhook, whose sender has only a signature.
    Hook,
    /// A request of a remote store.
    Rpc,
}

impl Kind {
    const COUNT: usize = 5;

    /// Determines the kind of a request from its method and path.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        if path.starts_with("/v1/hooks/") {
            Self::Hook
        } else if path.starts_with("/rpc/") {
            Self::Rpc
        } else if matches!(*method, Method::GET | Method::HEAD) {
            Self::Read
        } else if path.starts_with("/v1/workers") || path.starts_with("/v1/machines") {
            Self::Work
        } else {
            Self::Write
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Work => "requests of workers",
            Self::Hook => "webhooks",
            Self::Rpc => "requests of remote stores",
        }
    }
}

/// Takes a slot among those of a role.
fn slot(budgets: Option<&ByRole>, role: Role, token: Option<&Name>) -> Result<Permit, Full> {
    let budget = budgets.and_then(|budgets| budgets.get(of_role(role)));
    budget.ok_or(Full::NOTHING)?.take(1, token)
}

const fn of_role(role: Role) -> usize {
    match role {
        Role::Read => 0,
        Role::Send => 1,
        Role::Work => 2,
        Role::Operate => 3,
    }
}

/// The kind of a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A worker that waits for work.
    Claim,
    /// A call that waits for a result or an answer.
    Answer,
    /// A stream of events, open as long as its client keeps it.
    Stream,
}

impl Wait {
    const COUNT: usize = 3;
}

/// One budget for each role.
type ByRole = [Arc<Budget>; 4];

/// The budgets of a server.
pub struct Budgets {
    kinds: [ByRole; Kind::COUNT],
    waits: [ByRole; Wait::COUNT],
    /// Bytes of bodies: for all requests except webhooks, reserved for operators, and for webhooks.
    known: Arc<Budget>,
    operators: Arc<Budget>,
    strangers: Arc<Budget>,
}

/// A number of permits, of which one token gets at most `share`.
struct Budget {
    most: usize,
    share: usize,
    semaphore: Arc<Semaphore>,
    /// The number of permits of each token that has any.
    taken: Mutex<HashMap<Name, usize>>,
}

/// Permits that were taken from a budget, until this value is dropped.
pub struct Permit {
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
    token: Option<Name>,
}

/// Reason why a budget has no permit: the limit that was reached, and whether it is the share of the token.
struct Full {
    most: usize,
    is_share: bool,
}

impl Budget {
    fn new(most: usize, share: usize) -> Arc<Self> {
        let most = most.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            most,
            share,
            semaphore: Arc::new(Semaphore::new(most)),
            taken: Mutex::default(),
        })
    }

    /// Makes a budget of which one token gets at most half.
    fn halved(most: usize) -> Arc<Self> {
        Self::new(most, most.div_ceil(2))
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Name, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `count` permits for a token. Callers without a token have no share, because they cannot be distinguished.
    fn take(self: &Arc<Self>, count: usize, token: Option<&Name>) -> Result<Permit, Full> {
        let full = |most, is_share| Full { most, is_share };
        let mut taken = self.taken();
        let has = token.and_then(|token| taken.get(token)).copied();
        let has = has.unwrap_or(0).saturating_add(count);
        if token.is_some() && has > self.share {
            return Err(full(self.share, true));
        }
        let permits = u32::try_from(count).ok();
        let permit =
            permits.and_then(|count| self.semaphore.clone().try_acquire_many_owned(count).ok());
        let permit = permit.ok_or_else(|| full(self.most, false))?;
        if let Some(token) = token {
            taken.insert(token.clone(), has);
        }
        Ok(Permit {
            budget: self.clone(),
            permit: Some(permit),
            token: token.cloned(),
        })
    }
}

impl Permit {
    /// Adds the permits of `other`, which has the same budget and token.
    fn merge(&mut self, mut other: Self) {
        if let (Some(permit), Some(more)) = (&mut self.permit, other.permit.take()) {
            permit.merge(more);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let (Some(token), Some(permit)) = (&self.token, &self.permit) else {
            return;
        };
        let mut taken = self.budget.taken();
        if let Some(has) = taken.get_mut(token) {
            *has = has.saturating_sub(permit.num_permits());
            if *has == 0 {
                taken.remove(token);
            }
        }
    }
}

impl Full {
    /// The budget does not exist.
    const NOTHING: Self = Self {
        most: 0,
        is_share: false,
    };

    /// The problem to answer: too many `things`, as limited by `setting`.
    fn problem(&self, things: &str, setting: &str) -> Problem {
        let detail = match self.is_share {
            true => format!(
                "too many {things} with this token: one token may have at most {} of what the setting `{setting}` allows; send it again in a second, or use another token",
                self.most
            ),
            false => format!(
                "too many {things}: the setting `{setting}` allows no more; send it again in a second"
            ),
        };
        Problem::unavailable(detail).over(setting, self.most)
    }
}

impl Budgets {
    /// Makes the budgets: `in_flight` requests of each kind and role, `long_polls` waiting requests of each kind and
    /// role, and `receiving_bytes` for bodies, the largest of which has `body_bytes`.
    pub fn new(
        in_flight: usize,
        long_polls: usize,
        receiving_bytes: usize,
        body_bytes: usize,
    ) -> Self {
        let (strangers, operators) = (receiving_bytes / STRANGERS, receiving_bytes / OPERATORS);
        // One body of the maximum size always fits into the budget and into the share.
        let known = (receiving_bytes - operators).max(body_bytes.min(receiving_bytes));
        let share = known.div_ceil(2).max(body_bytes);
        Self {
            kinds: std::array::from_fn(|_| std::array::from_fn(|_| Budget::halved(in_flight))),
            waits: std::array::from_fn(|_| std::array::from_fn(|_| Budget::halved(long_polls))),
            known: Budget::new(known, share),
            operators: Budget::halved(operators),
            strangers: Budget::new(strangers, strangers),
        }
    }

    fn kind(&self, kind: Kind, role: Role, token: Option<&Name>) -> Result<Permit, Problem> {
        let things = match kind {
            // The sender has no token, and so no role.
            Kind::Hook => format!("{} at once", kind.words()),
            _ => format!("{} of the role {} at once", kind.words(), role.name()),
        };
        slot(self.kinds.get(kind as usize), role, token)
            .map_err(|full| full.problem(&things, "in_flight"))
    }

    /// Takes a slot for a request that waits.
    pub fn wait(&self, wait: Wait, role: Role, token: Option<&Name>) -> Result<Permit, Problem> {
        let things = format!("requests of the role {} that wait", role.name());
        slot(self.waits.get(wait as usize), role, token)
            .map_err(|full| full.problem(&things, "long_polls"))
    }

    fn bytes(
        &self,
        kind: Kind,
        role: Role,
        count: usize,
        token: Option<&Name>,
    ) -> Result<Permit, Problem> {
        let taken = match kind {
            Kind::Hook => self.strangers.take(count, token),
            _ => self.known.take(count, token),
        };
        let taken = match role {
            // Operators have a reserve, so that other callers cannot keep them out.
            Role::Operate => taken.or_else(|full| {
                let kept = self.operators.take(count, token);
                kept.map_err(|_| full)
            }),
            _ => taken,
        };
        let things = "bytes of requests that are being received";
        taken.map_err(|full| full.problem(things, "receiving_bytes"))
    }
}

/// Webhooks get this fraction of the bytes (one in 4).
const STRANGERS: usize = 4;

/// This fraction of the bytes is reserved for operators (one in 4).
const OPERATORS: usize = 4;

/// A request's slot among the concurrent requests. It has none until its body is complete. The bytes of its body are
/// counted for it. A request that waits gives its slot back and has one of another kind.
#[derive(Clone)]
pub struct Admission(Arc<Inner>);

struct Inner {
    budgets: Arc<Budgets>,
    held: Mutex<Held>,
}

struct Held {
    kind: Kind,
    /// The role of its token. Until that is known, and for webhooks, the lowest role.
    role: Role,
    token: Option<Name>,
    slot: Option<Permit>,
    /// The time when it took its slot.
    since: Option<Instant>,
    bytes: Vec<Permit>,
    waits: bool,
}

impl Wait {
    /// Determines from the path what a request waits for.
    pub fn of(uri: &Uri) -> Self {
        match uri.path() {
            "/v1/workers/claim" => Self::Claim,
            path if path.starts_with("/v1/stream") || path.starts_with("/rpc/") => Self::Stream,
            _ => Self::Answer,
        }
    }
}

impl Admission {
    pub(super) fn new(budgets: Arc<Budgets>, kind: Kind) -> Self {
        let held = Held {
            kind,
            role: Role::Read,
            token: None,
            slot: None,
            since: None,
            bytes: Vec::new(),
            waits: false,
        };
        Self(Arc::new(Inner {
            budgets,
            held: Mutex::new(held),
        }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the token and the role of the request. One token gets at most its share of the slots.
    pub fn came_by(&self, caller: &Caller, role: Role) {
        let mut held = self.held();
        held.token.clone_from(&caller.0);
        held.role = role;
    }

    /// Takes the slot, when the request is complete.
    pub fn take_slot(&self) -> Result<(), Problem> {
        let mut held = self.held();
        if held.slot.is_none() && !held.waits {
            let slot = self
                .0
                .budgets
                .kind(held.kind, held.role, held.token.as_ref())?;
            held.slot = Some(slot);
            held.since = Some(Instant::now());
        }
        Ok(())
    }

    /// The time since when it has a slot.
    pub(super) fn since(&self) -> Option<Instant> {
        self.held().since
    }

    /// Takes room for `count` more bytes of its body.
    pub(super) fn take_bytes(&self, count: usize) -> Result<(), Problem> {
        let mut held = self.held();
        let (kind, role, budgets) = (held.kind, held.role, &self.0.budgets);
        let taken = budgets.bytes(kind, role, count, held.token.as_ref())?;
        let budget = &taken.budget;
        let has = |permit: &&mut Permit| Arc::ptr_eq(&permit.budget, budget);
        match held.bytes.iter_mut().find(has) {
            Some(bytes) => bytes.merge(taken),
            None => held.bytes.push(taken),
        }
        Ok(())
    }

    /// Gives the slot back. From now on the request waits, in a slot of another kind.
    pub(super) fn give_back(&self) {
        let mut held = self.held();
        held.slot = None;
        held.waits = true;
    }

    /// `true` if it has given its slot back.
    pub(super) fn waits(&self) -> bool {
        self.held().waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_role_has_slots_of_its_own() {
        let budgets = Arc::new(Budgets::new(1, 1, 400, 400));
        let ticket = |kind| Admission::new(budgets.clone(), kind);
        let hook = ticket(Kind::Hook);
        hook.take_slot().unwrap();
        assert!(ticket(Kind::Hook).take_slot().is_err());
        for kind in [Kind::Read, Kind::Write, Kind::Work, Kind::Rpc] {
            assert!(ticket(kind).take_slot().is_ok(), "{kind:?}");
        }
        drop(hook);
        assert!(ticket(Kind::Hook).take_slot().is_ok());
        let _stream = budgets.wait(Wait::Stream, Role::Read, None).unwrap();
        assert!(budgets.wait(Wait::Stream, Role::Read, None).is_err());
        assert!(budgets.wait(Wait::Claim, Role::Read, None).is_ok());
        assert!(budgets.wait(Wait::Stream, Role::Work, None).is_ok());
    }

    #[test]
    fn tokens_of_one_role_take_no_slot_of_another_role() {
        let budgets = Arc::new(Budgets::new(2, 2, 400, 100));
        for kind in [Kind::Read, Kind::Write, Kind::Work, Kind::Rpc] {
            let ticket = |name: &str, role| {
                let ticket = Admission::new(budgets.clone(), kind);
                ticket.came_by(&Caller(Some(Name::new(name).unwrap())), role);
                ticket
            };
            let mut held = Vec::new();
            for role in [Role::Read, Role::Send, Role::Work, Role::Operate] {
                let mine = ["one", "two"].map(|name| ticket(name, role));
                mine.iter().for_each(|one| one.take_slot().unwrap());
                let refused = ticket("three", role).take_slot().unwrap_err();
                assert!(refused.detail.contains(role.name()), "{refused:?}");
                held.push(mine);
            }
        }
    }

    #[test]
    fn webhooks_and_callers_with_a_token_have_separate_bytes() {
        let budgets = Arc::new(Budgets::new(9, 9, 400, 100));
        let stranger = Admission::new(budgets.clone(), Kind::Hook);
        stranger.take_bytes(60).unwrap();
        stranger.take_bytes(40).unwrap();
        assert!(stranger.take_bytes(1).is_err());
        let known = Admission::new(budgets.clone(), Kind::Write);
        known.take_bytes(300).unwrap();
        assert!(known.take_bytes(1).is_err());
        drop((stranger, known));
        assert!(Admission::new(budgets, Kind::Hook).take_bytes(100).is_ok());
    }

    #[test]
    fn bytes_are_kept_for_operators() {
        let budgets = Arc::new(Budgets::new(9, 9, 400, 100));
        let ticket = |name: &str, role| {
            let ticket = Admission::new(budgets.clone(), Kind::Write);
            ticket.came_by(&Caller(Name::new(name).ok()), role);
            ticket
        };
        let senders = ["one", "two"].map(|name| ticket(name, Role::Send));
        for sender in &senders {
            sender.take_bytes(150).unwrap();
            assert!(sender.take_bytes(1).is_err());
        }
        assert!(ticket("three", Role::Send).take_bytes(1).is_err());
        let operator = ticket("operator", Role::Operate);
        operator.take_bytes(40).unwrap();
        operator.take_bytes(10).unwrap();
        assert!(operator.take_bytes(1).is_err());
        drop(senders);
        // The operator also gets what the others have left.
        operator.take_bytes(100).unwrap();
        drop(operator);
        assert!(ticket("one", Role::Operate).take_bytes(150).is_ok());
    }

    #[test]
    fn one_token_gets_half_of_the_slots_and_leaves_the_rest_to_others() {
        let budgets = Arc::new(Budgets::new(4, 4, 400, 100));
        let [one, other] = ["one", "other"].map(|name| Caller(Some(Name::new(name).unwrap())));
        let ticket = |caller: &Caller| {
            let ticket = Admission::new(budgets.clone(), Kind::Read);
            ticket.came_by(caller, Role::Read);
            ticket
        };
        let mine = [ticket(&one), ticket(&one)];
        mine.iter().for_each(|one| one.take_slot().unwrap());
        let refused = ticket(&one).take_slot().unwrap_err();
        assert_eq!(refused.more["most"], 2);
        assert!(refused.detail.contains("this token"), "{refused:?}");
        assert!(ticket(&other).take_slot().is_ok());
        drop(mine);
        assert!(ticket(&one).take_slot().is_ok());

        let wait = |caller: &Caller| budgets.wait(Wait::Claim, Role::Work, caller.0.as_ref());
        let waits = [wait(&one).unwrap(), wait(&one).unwrap()];
        assert!(wait(&one).is_err() && wait(&other).is_ok());
        drop(waits);
        assert!(wait(&one).is_ok());

        let large = ticket(&one);
        large.take_bytes(100).unwrap();
        large.take_bytes(50).unwrap();
        assert!(large.take_bytes(1).is_err());
        assert!(ticket(&other).take_bytes(150).is_ok());
        drop(large);
        assert!(ticket(&one).take_bytes(150).is_ok());
        // Callers without a token cannot be distinguished, and have no share.
        let open = Caller(None);
        assert!(ticket(&open).take_bytes(300).is_ok());
    }
}
