//! Outcomes that cannot be stored go to the error handler, and never loop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use abide::client::new_start;
use abide::machine::{Fault, FaultKind};
use abide::model::Limits;
use abide::{Abide, Context, Machine, Outcome, Status, Step};
use abide::{done, next};
use serde::{Deserialize, Serialize, Serializer};

use crate::common::{Lab, Log};

/// Answers what no store can take, in as many ways as there are steps.
#[derive(Clone, Default)]
struct Greedy {
    steps: Arc<AtomicU32>,
    faults: Log<(FaultKind, String)>,
    handler: Handler,
}

#[derive(Clone, Copy, Default)]
enum Handler {
    /// Ends well, with what fits.
    #[default]
    Modest,
    /// Answers what does not fit either.
    AsGreedy,
    /// Answers what cannot be written either.
    AsUnwritable,
}

#[derive(Step, Clone, Copy)]
enum Want {
    LargeState,
    LargeResult,
    ManyChildren,
    LargeChild,
    UnwritableState,
    UnwritableResult,
}

/// A state that cannot always be written.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
struct Bag(String);

impl Serialize for Bag {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.0 == "unwritable" {
            return Err(serde::ser::Error::custom("the bag is torn"));
        }
        self.0.serialize(to)
    }
}

#[derive(Serialize, Deserialize)]
enum Result_ {
    Text(String),
    /// JSON has no keys but texts.
    Map(BTreeMap<Vec<u8>, u8>),
}

impl Machine for Greedy {
    const NAME: &'static str = "greedy";
    type Step = Want;
    type State = Bag;
    type Output = Result_;

    async fn step(&self, at: Want, ctx: &mut Context<Self>) -> Outcome<Self> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        let child = || new_start(Self::default(), Bag::default());
        match at {
            Want::LargeState => {
                ctx.state_mut().0 = "x".repeat(2_000);
                next(Want::LargeState)
            }
            Want::LargeResult => done(Result_::Text("x".repeat(2_000))),
            Want::ManyChildren => ctx.spawn((0..11).map(|_| child())).then(Want::LargeState),
            Want::LargeChild => {
                let large = new_start(Self::default(), Bag("x".repeat(2_000)));
                ctx.spawn([child(), large]).then(Want::LargeState)
            }
            Want::UnwritableState => {
                ctx.state_mut().0 = "unwritable".into();
                ctx.sleep(abide::time::days(1)).then(Want::LargeState)
            }
            Want::UnwritableResult => done(Result_::Map(BTreeMap::from([(vec![1], 1)]))),
        }
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        self.faults.note((fault.kind(), fault.to_string()));
        assert_eq!(ctx.state().0, "", "the state is as the step found it");
        match self.handler {
            Handler::Modest => done(Result_::Text("less".into())),
            Handler::AsGreedy => done(Result_::Text("y".repeat(3_000))),
            Handler::AsUnwritable => done(Result_::Map(BTreeMap::from([(vec![2], 2)]))),
        }
    }
}

/// Small limits, to be met quickly.
fn limits() -> Limits {
    Limits {
        state_bytes: 1_000,
        result_bytes: 1_000,
        children_per_barrier: 10,
        ..Limits::default()
    }
}

const REFUSED: [(Want, &str); 4] = [
    (
        Want::LargeState,
        "2002 is over the limit state_bytes of 1000",
    ),
    (
        Want::LargeResult,
        "2011 is over the limit result_bytes of 1000",
    ),
    (
        Want::ManyChildren,
        "11 is over the limit children_per_barrier of 10",
    ),
    (
        Want::LargeChild,
        "2002 is over the limit state_bytes of 1000",
    ),
];
const UNWRITABLE: [(Want, &str); 2] = [
    (Want::UnwritableState, "the bag is torn"),
    (Want::UnwritableResult, "key must be a string"),
];

on_every_store! {
    async fn an_outcome_over_a_limit_goes_to_the_error_handler(lab: Lab) {
        // rules 4.2, 16.3
        let lab = lab.opened(Abide::options().limits(limits())).await;
        for (want, expected) in REFUSED.into_iter().chain(UNWRITABLE) {
            let greedy = Greedy::default();
            let engine = lab.engine().machine(greedy.clone()).start().await.unwrap();
            let order = lab.start(greedy.clone(), Bag::default()).step(want).await.unwrap();
            assert!(matches!(lab.came_to(&order).await, Result_::Text(text) if text == "less"));
            let faults = greedy.faults.read();
            assert!(faults.len() == 1 && faults[0].0 == FaultKind::Outcome, "{faults:?}");
            assert!(faults[0].1.contains(expected), "{faults:?}");
            assert_eq!(greedy.steps.load(Ordering::SeqCst), 1, "it is not run again");
            assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "done"]);
            engine.shutdown().await;
        }
        assert_eq!(count(&lab).await, 6, "no child was started");
    }
}

on_every_store! {
    async fn when_the_handlers_outcome_cannot_be_stored_either_the_instance_fails(lab: Lab) {
        // rule 4.2: it never loops.
        let lab = lab.opened(Abide::options().limits(limits())).await;
        for (want, expected) in REFUSED.into_iter().chain(UNWRITABLE) {
            for (handler, and) in [
                (Handler::AsGreedy, "3011 is over the limit result_bytes of 1000"),
                (Handler::AsUnwritable, "key must be a string"),
            ] {
                let greedy = Greedy { handler, ..Greedy::default() };
                let engine = lab.engine().machine(greedy.clone()).start().await.unwrap();
                let order = lab.start(greedy.clone(), Bag::default()).step(want).await.unwrap();
                let error = lab.failed_of(&order).await;
                assert!(error.contains(expected) && error.contains(and), "both messages: {error}");
                assert_eq!((greedy.steps.load(Ordering::SeqCst), greedy.faults.len()), (1, 1));
                assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "failed"]);
                engine.shutdown().await;
            }
        }
    }
}

on_every_store! {
    async fn a_refused_outcome_hurts_no_other_of_its_batch(lab: Lab) {
        // rule 4.2
        let lab = lab.opened(Abide::options().limits(limits())).await;
        let greedy = Greedy::default();
        let starts = (0..50).map(|n| {
            let want = if n % 2 == 0 { Want::LargeResult } else { Want::UnwritableResult };
            new_start(greedy.clone(), Bag::default()).step(want)
        });
        let started = lab.start_all(starts).await.unwrap();
        let engine = lab.engine().machine(greedy.clone()).start().await.unwrap();
        for one in started {
            let ended = lab.ended(one.unwrap().id()).await;
            assert_eq!((ended.status, ended.attempt), (Status::Done, 0));
        }
        assert_eq!((greedy.faults.len(), greedy.steps.load(Ordering::SeqCst)), (50, 50));
        assert_eq!(engine.stats().refused, 25, "the others were never sent");
        engine.shutdown().await;
    }
}

async fn count(lab: &Lab) -> usize {
    lab.list(&Default::default(), None, 1_000)
        .await
        .unwrap()
        .items
        .len()
}
