//! How many requests are worked on at once, and how many bytes of bodies are taken in: each kind of request, and each role,
//! has a budget of its own, so that none can shut out the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::{Method, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::Problem;
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
    in_flight: usize,
    long_polls: usize,
    receiving_bytes: usize,
    kinds: [Arc<Semaphore>; Kind::COUNT],
    waits: [[Arc<Semaphore>; 4]; 3],
    /// Bytes of bodies, of those who have shown a token, and of strangers.
    known: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

impl Places {
    /// So many requests of each kind, so many that wait of each kind and role, and so many bytes of bodies.
    pub fn new(in_flight: usize, long_polls: usize, receiving_bytes: usize) -> Self {
        let of = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Self {
            in_flight,
            long_polls,
            receiving_bytes,
            kinds: std::array::from_fn(|_| of(in_flight)),
            waits: std::array::from_fn(|_| std::array::from_fn(|_| of(long_polls))),
            known: of(receiving_bytes),
            strangers: of(receiving_bytes / STRANGERS),
        }
    }

    fn kind(&self, kind: Kind) -> Result<OwnedSemaphorePermit, Problem> {
        let place = self.kinds.get(kind.place()).cloned();
        place
            .and_then(|place| place.try_acquire_owned().ok())
            .ok_or_else(|| {
                let detail = format!(
                    "too many {} at once: the server works on as many as the setting `in_flight` allows; send it again in a second",
                    kind.words()
                );
                Problem::unavailable(detail).over("in_flight", self.in_flight)
            })
    }

    /// A place for a request that waits.
    pub fn wait(&self, wait: Wait, role: Role) -> Result<OwnedSemaphorePermit, Problem> {
        let places = self.waits.get(wait as usize);
        let place = places.and_then(|places| places.get(of_role(role)).cloned());
        place
            .and_then(|place| place.try_acquire_owned().ok())
            .ok_or_else(|| {
                let detail = format!(
                    "too many requests of the role {} wait: the setting `long_polls` allows no more; send it again in a second",
                    role.name()
                );
                Problem::unavailable(detail).over("long_polls", self.long_polls)
            })
    }

    fn bytes(&self, kind: Kind, count: usize) -> Result<OwnedSemaphorePermit, Problem> {
        let (budget, most) = match kind {
            Kind::Hook => (&self.strangers, self.receiving_bytes / STRANGERS),
            _ => (&self.known, self.receiving_bytes),
        };
        let taken = u32::try_from(count).ok();
        taken
            .and_then(|count| budget.clone().try_acquire_many_owned(count).ok())
            .ok_or_else(|| {
                let detail = "too many bytes of other requests are being received: the setting `receiving_bytes` allows no more; send it again in a second";
                Problem::unavailable(detail).over("receiving_bytes", most)
            })
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
    place: Option<OwnedSemaphorePermit>,
    /// Since when it has one.
    since: Option<Instant>,
    bytes: Option<OwnedSemaphorePermit>,
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

    /// Says whose remote store it is, as its token does.
    pub fn is_of(&self, role: Role) {
        self.held().kind = Kind::Rpc(role);
    }

    /// Takes the place, now that all of the request is there.
    pub fn take_place(&self) -> Result<(), Problem> {
        let mut held = self.held();
        if held.place.is_none() && !held.waits {
            held.place = Some(self.0.places.kind(held.kind)?);
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
        let taken = self.0.places.bytes(held.kind, count)?;
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
        let places = Arc::new(Places::new(1, 1, 400));
        let ticket = |kind| Ticket::new(places.clone(), kind);
        let hook = ticket(Kind::Hook);
        hook.take_place().unwrap();
        assert!(ticket(Kind::Hook).take_place().is_err());
        for kind in [Kind::Read, Kind::Write, Kind::Work, Kind::Rpc(Role::Work)] {
            assert!(ticket(kind).take_place().is_ok(), "{kind:?}");
        }
        drop(hook);
        assert!(ticket(Kind::Hook).take_place().is_ok());
        let _stream = places.wait(Wait::Stream, Role::Read).unwrap();
        assert!(places.wait(Wait::Stream, Role::Read).is_err());
        assert!(places.wait(Wait::Claim, Role::Read).is_ok());
        assert!(places.wait(Wait::Stream, Role::Work).is_ok());
    }

    #[test]
    fn the_bytes_of_strangers_are_not_those_of_who_has_a_token() {
        let places = Arc::new(Places::new(9, 9, 400));
        let stranger = Ticket::new(places.clone(), Kind::Hook);
        stranger.take_bytes(60).unwrap();
        stranger.take_bytes(40).unwrap();
        assert!(stranger.take_bytes(1).is_err());
        let known = Ticket::new(places.clone(), Kind::Write);
        known.take_bytes(400).unwrap();
        drop((stranger, known));
        assert!(Ticket::new(places, Kind::Hook).take_bytes(100).is_ok());
    }
}
