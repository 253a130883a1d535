//! Short constructors for events and for waits for them.

use abide_core::model::{
    Claim, Committed, Event, EventWait, InstanceId, Json, Operator, Outcome, Park, Path, Publish,
    Published, Refusal, Start, Status, Timestamp, Wait, Waiter, WorkerId,
};

use super::build::{commit, json, name};
use super::lab::Lab;
use crate::{Answer, EventFilter, Op, WaiterFilter};

/// A wait for any event of that type.
pub(super) fn any(of: &str) -> EventWait {
    EventWait {
        event_type: name(of),
        conditions: Vec::new(),
        lookback_ms: None,
    }
}

/// The same wait, with one more condition.
pub(super) fn that(wait: EventWait, left: &str, op: Operator, right: &str) -> EventWait {
    let mut wait = wait;
    wait.conditions.push(abide_core::model::Condition {
        left: Path::new(left).expect("a good path"),
        op,
        right: json(right),
    });
    wait
}

/// One for the events `order` of that id.
pub(super) fn order(id: i64) -> EventWait {
    that(any("order"), "id", Operator::Eq, &id.to_string())
}

/// The same, which looks back that far.
pub(super) fn back(wait: EventWait, lookback_ms: u64) -> EventWait {
    EventWait {
        lookback_ms: Some(lookback_ms),
        ..wait
    }
}

/// A wait for events and signals, for a minute.
pub(super) fn awaits(events: Vec<EventWait>, signals: &[&str]) -> Outcome {
    within_ms(events, signals, Some(60_000))
}

pub(super) fn within_ms(
    events: Vec<EventWait>,
    signals: &[&str],
    timeout_ms: Option<u64>,
) -> Outcome {
    Outcome::Wait(Wait {
        signals: signals.iter().map(|signal| name(signal)).collect(),
        events,
        timeout_ms,
        next: name("woken"),
        state: json("{\"waits\":1}"),
    })
}

/// A wait of a workflow for an event for each of these operations, until then.
pub(super) fn parks(events: Vec<(u32, EventWait)>, until: Timestamp) -> Park {
    Park {
        operation: events.first().map_or(1, |(operation, _)| *operation),
        events,
        until: Some(until),
        ..Park::default()
    }
}

pub(super) fn publishing(of: &str, payload: &str) -> Publish {
    Publish {
        event_type: name(of),
        payload: json(payload),
        event_id: None,
    }
}

/// The event `order` of that id.
pub(super) fn ordered(id: i64) -> Publish {
    publishing("order", &format!("{{\"id\":{id}}}"))
}

/// The same event, however often it is published.
pub(super) fn known_as(event_id: &str, publish: Publish) -> Publish {
    Publish {
        event_id: Some(name(event_id)),
        ..publish
    }
}

impl Lab {
    /// Publishes many, in one call; what became of each.
    pub(super) async fn publish_all(
        &self,
        publishes: Vec<Publish>,
    ) -> Vec<Result<Published, Refusal>> {
        match self.run(Op::Publish(publishes)).await {
            Answer::Published(each) => each,
            other => panic!("a publication is not answered with {other:?}"),
        }
    }

    pub(super) async fn publish(&self, publish: Publish) -> Published {
        let mut each = self.publish_all(vec![publish]).await;
        let one = each.pop().expect("the event has its answer");
        one.expect("the event is taken")
    }

    /// Publishes one that is new; how many it matched.
    pub(super) async fn tell(&self, publish: Publish) -> u32 {
        let published = self.publish(publish).await;
        assert!(!published.duplicate, "{published:?}");
        published.matched
    }

    /// All events, newest first.
    pub(super) async fn published(&self) -> Vec<Event> {
        let all = EventFilter::default();
        let page = self.store.events(&all, None, 10_000).await;
        page.expect("the store can be read").items
    }

    /// All waits for events.
    pub(super) async fn waiters(&self) -> Vec<Waiter> {
        let all = WaiterFilter::default();
        let page = self.store.waiters(&all, None, 10_000).await;
        page.expect("the store can be read").items
    }

    /// The instances that wait for events, each as often as it does.
    pub(super) async fn waits_for_events(&self) -> Vec<InstanceId> {
        let waiters = self.waiters().await;
        waiters.iter().map(|waiter| waiter.instance).collect()
    }

    /// Starts one, runs its first step, and lets it wait; it must be what is claimed first.
    pub(super) async fn awaiting(
        &self,
        worker: WorkerId,
        start: Start,
        outcome: Outcome,
    ) -> InstanceId {
        let id = self.start(start).await;
        let claimed = self.claim(worker).await;
        assert_eq!(claimed.claim.id(), id);
        let answer = self.commit(claimed.claim, outcome).await;
        assert_eq!(answer, Committed::Moved(Status::AwaitingSignal));
        id
    }

    /// Commits what is refused; why.
    pub(super) async fn refused(&self, claim: Claim, outcome: Outcome) -> Refusal {
        let answers = self.commit_all(vec![commit(claim, outcome)]).await;
        match answers.into_iter().next() {
            Some(Committed::Refused(refusal)) => refusal,
            other => panic!("it should be refused, and is {other:?}"),
        }
    }
}

/// The arguments in the record of a matched event with that payload.
pub(super) fn arguments_of(payload: &str) -> Json {
    json(&format!("[{payload}]"))
}
