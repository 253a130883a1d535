//! How many requests are worked on at once, and how many bytes of bodies are taken in: each kind of request, and each role,
//! has a budget of its own, of which one token has at most half, so that none can shut out the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide::Name;
use axum::http::{Method, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Caller, Problem};
use crate::auth::Role;

/// What a request is, as far as its place goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Looking.
    Read,
    /// Starting, sending, operating.
    Write,
    /// What workers do.
    Work,
    /// A webhook, whose sender is known by nothing but its signature.
    Hook,
    /// A store over HTTP, by the role of its token.
    Rpc(Role),
}

impl Kind {
    const COUNT: usize = 8;

    /// What a request is that names itself so. What comes over `/rpc` is not known before its token is.
    pub fn of(method: &Method, uri: &Uri) -> Self {
        let path = uri.path();
        if path.starts_with("/v1/hooks/") {
            Self::Hook
        } else if path.starts_with("/rpc/") {
            Self::Rpc(Role::Read)
        } else if matches!(*method, Method::GET | Method::HEAD) {
            Self::Read
        } else if path.starts_with("/v1/workers") || path.starts_with("/v1/machines") {
            Self::Work
        } else {
            Self::Write
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Work => 2,
            Self::Hook => 3,
            Self::Rpc(role) => 4 + of_role(role),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Work => "requests of workers",
            Self::Hook => "webhooks",
            Self::Rpc(_) => "requests of remote stores of this role",
        }
    }
}

const fn of_role(role: Role) -> usize {
    match role {
        Role::Read => 0,
        Role::Send => 1,
        Role::Work => 2,
        Role::Operate => 3,
    }
}

/// What waits for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A worker that waits for work.
    Claim,
    /// A call that waits for a result or an answer.
    Answer,
    /// A stream of events, open for as long as its client likes.
    Stream,
}

/// The budgets of a server.
pub struct Places {
    kinds: [Arc<Budget>; Kind::COUNT],
    waits: [[Arc<Budget>; 4]; 3],
    /// Bytes of bodies, of those who have shown a token, and of strangers.
    known: Arc<Budget>,
    strangers: Arc<Budget>,
}

/// So many places, of which one token has no more than its share.
struct Budget {
    most: usize,
    share: usize,
    places: Arc<Semaphore>,
    /// What each token has, as long as it has anything.
    taken: Mutex<HashMap<Name, usize>>,
}

/// What was taken of a budget, until that is dropped.
pub struct Place {
    budget: Arc<Budget>,
    permit: Option<OwnedSemaphorePermit>,
    token: Option<Name>,
}

/// Why there is no place: the number that was met, and whether it is the share of the token.
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
            places: Arc::new(Semaphore::new(most)),
            taken: Mutex::default(),
        })
    }

    /// So many places, and at most half of them for one token.
    fn halved(most: usize) -> Arc<Self> {
        Self::new(most, most.div_ceil(2))
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<Name, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many places for a token. Who needs none has no share: it cannot be told from anybody else.
    fn take(self: &Arc<Self>, count: usize, token: Option<&Name>) -> Result<Place, Full> {
        let full = |most, is_share| Full { most, is_share };
        let mut taken = self.taken();
        let has = token.and_then(|token| taken.get(token)).copied();
        let has = has.unwrap_or(0).saturating_add(count);
        if token.is_some() && has > self.share {
            return Err(full(self.share, true));
        }
        let permits = u32::try_from(count).ok();
        let permit =
            permits.and_then(|count| self.places.clone().try_acquire_many_owned(count).ok());
        let permit = permit.ok_or_else(|| full(self.most, false))?;
        if let Some(token) = token {
            taken.insert(token.clone(), has);
        }
        Ok(Place {
            budget: self.clone(),
            permit: Some(permit),
            token: token.cloned(),
        })
    }
}

impl Place {
    /// Takes in another one, of the same budget and token.
    fn merge(&mut self, mut other: Self) {
        if let (Some(permit), Some(more)) = (&mut self.permit, other.permit.take()) {
            permit.merge(more);
        }
    }
}

impl Drop for Place {
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
    /// There is no such budget.
    const NOTHING: Self = Self {
        most: 0,
        is_share: false,
    };

    /// What is answered: that there are too many of something, by that setting.
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

impl Places {
    /// So many requests of each kind, so many that wait of each kind and role, and so many bytes of bodies, of which the
    /// largest has so many.
    pub fn new(
        in_flight: usize,
        long_polls: usize,
        receiving_bytes: usize,
        body_bytes: usize,
    ) -> Self {
        let strangers = receiving_bytes / STRANGERS;
        // One body always fits into the share.
        let share = receiving_bytes.div_ceil(2).max(body_bytes);
        Self {
            kinds: std::array::from_fn(|_| Budget::halved(in_flight)),
            waits: std::array::from_fn(|_| std::array::from_fn(|_| Budget::halved(long_polls))),
            known: Budget::new(receiving_bytes, share),
            strangers: Budget::new(strangers, strangers),
        }
    }

    fn kind(&self, kind: Kind, token: Option<&Name>) -> Result<Place, Problem> {
        let things = format!("{} at once", kind.words());
        let budget = self.kinds.get(kind.place()).ok_or(Full::NOTHING);
        budget
            .and_then(|budget| budget.take(1, token))
            .map_err(|full| full.problem(&things, "in_flight"))
    }

    /// A place for a request that waits.
    pub fn wait(&self, wait: Wait, role: Role, token: Option<&Name>) -> Result<Place, Problem> {
        let things = format!("requests of the role {} that wait", role.name());
        let budgets = self.waits.get(wait as usize);
        let budget = budgets.and_then(|budgets| budgets.get(of_role(role)));
        budget
            .ok_or(Full::NOTHING)
            .and_then(|budget| budget.take(1, token))
            .map_err(|full| full.problem(&things, "long_polls"))
    }

    fn bytes(&self, kind: Kind, count: usize, token: Option<&Name>) -> Result<Place, Problem> {
        let budget = match kind {
            Kind::Hook => &self.strangers,
            _ => &self.known,
        };
        let things = "bytes of requests that are being received";
        budget
            .take(count, token)
            .map_err(|full| full.problem(things, "receiving_bytes"))
    }
}

/// What part of the bytes strangers may have.
const STRANGERS: usize = 4;

/// A request's place among those that are worked on. It has none until its body is there, and what its body takes is its
/// own; one that waits gives its place back and has another.
#[derive(Clone)]
pub struct Ticket(Arc<Inner>);

struct Inner {
    places: Arc<Places>,
    held: Mutex<Held>,
}

struct Held {
    kind: Kind,
    token: Option<Name>,
    place: Option<Place>,
    /// Since when it has one.
    since: Option<Instant>,
    bytes: Option<Place>,
    waits: bool,
}

impl Wait {
    /// What a request waits for that names itself so.
    pub fn of(uri: &Uri) -> Self {
        match uri.path() {
            "/v1/workers/claim" => Self::Claim,
            path if path.starts_with("/v1/stream") || path.starts_with("/rpc/") => Self::Stream,
            _ => Self::Answer,
        }
    }
}

impl Ticket {
    pub(super) fn new(places: Arc<Places>, kind: Kind) -> Self {
        let held = Held {
            kind,
            token: None,
            place: None,
            since: None,
            bytes: None,
            waits: false,
        };
        Self(Arc::new(Inner {
            places,
            held: Mutex::new(held),
        }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says by which token it came: one token has no more than its share of the places.
    pub fn came_by(&self, caller: &Caller) {
        self.held().token.clone_from(&caller.0);
    }

    /// Says whose remote store it is, as its token does.
    pub fn is_of(&self, role: Role) {
        self.held().kind = Kind::Rpc(role);
    }

    /// Takes the place, now that all of the request is there.
    pub fn take_place(&self) -> Result<(), Problem> {
        let mut held = self.held();
        if held.place.is_none() && !held.waits {
            held.place = Some(self.0.places.kind(held.kind, held.token.as_ref())?);
            held.since = Some(Instant::now());
        }
        Ok(())
    }

    /// Since when it has been worked on.
    pub(super) fn since(&self) -> Option<Instant> {
        self.held().since
    }

    /// Takes room for so many more bytes of its body.
    pub(super) fn take_bytes(&self, count: usize) -> Result<(), Problem> {
        let mut held = self.held();
        let taken = self.0.places.bytes(held.kind, count, held.token.as_ref())?;
        match &mut held.bytes {
            Some(bytes) => bytes.merge(taken),
            none => *none = Some(taken),
        }
        Ok(())
    }

    /// Gives the place back: from now on it waits, in a place of another kind.
    pub(super) fn give_back(&self) {
        let mut held = self.held();
        held.place = None;
        held.waits = true;
    }

    /// Whether it has given its place back.
    pub(super) fn waits(&self) -> bool {
        self.held().waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_role_has_places_of_its_own() {
        let places = Arc::new(Places::new(1, 1, 400, 400));
        let ticket = |kind| Ticket::new(places.clone(), kind);
        let hook = ticket(Kind::Hook);
        hook.take_place().unwrap();
        assert!(ticket(Kind::Hook).take_place().is_err());
        for kind in [Kind::Read, Kind::Write, Kind::Work, Kind::Rpc(Role::Work)] {
            assert!(ticket(kind).take_place().is_ok(), "{kind:?}");
        }
        drop(hook);
        assert!(ticket(Kind::Hook).take_place().is_ok());
        let _stream = places.wait(Wait::Stream, Role::Read, None).unwrap();
        assert!(places.wait(Wait::Stream, Role::Read, None).is_err());
        assert!(places.wait(Wait::Claim, Role::Read, None).is_ok());
        assert!(places.wait(Wait::Stream, Role::Work, None).is_ok());
    }

    #[test]
    fn the_bytes_of_strangers_are_not_those_of_who_has_a_token() {
        let places = Arc::new(Places::new(9, 9, 400, 100));
        let stranger = Ticket::new(places.clone(), Kind::Hook);
        stranger.take_bytes(60).unwrap();
        stranger.take_bytes(40).unwrap();
        assert!(stranger.take_bytes(1).is_err());
        let known = Ticket::new(places.clone(), Kind::Write);
        known.take_bytes(400).unwrap();
        drop((stranger, known));
        assert!(Ticket::new(places, Kind::Hook).take_bytes(100).is_ok());
    }

    #[test]
    fn one_token_has_half_of_the_places_and_leaves_the_others_to_the_rest() {
        let places = Arc::new(Places::new(4, 4, 400, 100));
        let [one, other] = ["one", "other"].map(|name| Caller(Some(Name::new(name).unwrap())));
        let ticket = |caller: &Caller| {
            let ticket = Ticket::new(places.clone(), Kind::Read);
            ticket.came_by(caller);
            ticket
        };
        let mine = [ticket(&one), ticket(&one)];
        mine.iter().for_each(|one| one.take_place().unwrap());
        let refused = ticket(&one).take_place().unwrap_err();
        assert_eq!(refused.more["most"], 2);
        assert!(refused.detail.contains("this token"), "{refused:?}");
        assert!(ticket(&other).take_place().is_ok());
        drop(mine);
        assert!(ticket(&one).take_place().is_ok());

        let wait = |caller: &Caller| places.wait(Wait::Claim, Role::Work, caller.0.as_ref());
        let waits = [wait(&one).unwrap(), wait(&one).unwrap()];
        assert!(wait(&one).is_err() && wait(&other).is_ok());
        drop(waits);
        assert!(wait(&one).is_ok());

        let large = ticket(&one);
        large.take_bytes(150).unwrap();
        large.take_bytes(50).unwrap();
        assert!(large.take_bytes(1).is_err());
        assert!(ticket(&other).take_bytes(200).is_ok());
        drop(large);
        assert!(ticket(&one).take_bytes(200).is_ok());
        // Who needs no token cannot be told from others, and has no share.
        let open = Caller(None);
        assert!(ticket(&open).take_bytes(400).is_ok());
    }
}
