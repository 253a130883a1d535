//! Versions of a machine side by side.

use std::time::Duration;

use abide::client::StartError;
use abide::machine::{continue_as_version, of};
use abide::model::Json;
use abide::time::hours;
use abide::{Context, Error, Machine, Outcome, Status, Step, done, next};

use crate::common::{Gate, Lab};

/// A machine in two versions, whose steps and results tell them apart.
struct Tea<const VERSION: u32>(Gate);

#[derive(Step)]
enum Brew {
    Boil,
    Pour,
}

impl<const VERSION: u32> Tea<VERSION> {
    fn now() -> Self {
        let gate = Gate::closed();
        gate.open();
        Self(gate)
    }
}

impl<const VERSION: u32> Machine for Tea<VERSION> {
    const NAME: &'static str = "tea";
    const VERSION: u32 = VERSION;
    type Step = Brew;
    type State = u32;
    type Output = u32;

    async fn step(&self, at: Brew, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Brew::Boil => {
                self.0.pass().await;
                *ctx.state_mut() = VERSION;
                next(Brew::Pour)
            }
            Brew::Pour => done(*ctx.state() * 10 + VERSION),
        }
    }
}

/// Goes over to version 2 of itself.
struct Kettle<const VERSION: u32>;

impl<const VERSION: u32> Machine for Kettle<VERSION> {
    const NAME: &'static str = "kettle";
    const VERSION: u32 = VERSION;
    type Step = Brew;
    type State = u32;
    type Output = u32;

    async fn step(&self, at: Brew, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() = *ctx.state() * 10 + VERSION;
        match at {
            Brew::Boil => continue_as_version(2, Brew::Pour),
            Brew::Pour => done(*ctx.state()),
        }
    }
}

on_every_store! {
    async fn a_chain_goes_over_to_another_version(lab: Lab) {
        // rule 2.4
        let engine = lab.engine().machine(Kettle::<1>).machine(Kettle::<2>).start().await.unwrap();
        let kettle = lab.start(Kettle::<1>, 0).key("k").await.unwrap();
        assert_eq!(lab.came_to(&kettle).await, 12);
        let last = lab.get("k").await.unwrap().unwrap();
        assert_eq!((last.version, last.run.number), (2, 2));
        engine.shutdown().await;
    }
}

fn cups() -> Json {
    Json::of(&0).unwrap()
}

on_every_store! {
    async fn two_versions_run_side_by_side_and_each_instance_finishes_on_its_own(lab: Lab) {
        // rule 2.6
        let gate = Gate::closed();
        let old = lab.engine().machine(Tea::<1>(gate.clone())).start().await.unwrap();
        let begun = lab.start(Tea::<1>::now(), 0).await.unwrap();
        gate.reached_by(1).await;
        let both = lab.again().await.engine().machine(Tea::<1>::now()).machine(Tea::<2>::now());
        let both = both.start().await.unwrap();
        let new = lab.start(Tea::<2>::now(), 0).await.unwrap();
        assert_eq!(lab.came_to(&new).await, 22);
        // A start that names no version takes the newest; one that names the old one keeps it.
        let newest = lab.start("tea", cups()).await.unwrap().id();
        let pinned = lab.start("tea", cups()).version(1).await.unwrap().id();
        assert_eq!((lab.ended(newest).await.version, lab.now(pinned).await.version), (2, 1));
        gate.open();
        assert_eq!(lab.came_to(&begun).await, 11);
        assert_eq!(lab.ended(pinned).await.result.unwrap().as_str(), "11");
        old.shutdown().await;
        both.shutdown().await;
    }
}

on_every_store! {
    async fn an_instance_without_code_is_left_alone_until_a_worker_has_the_code(lab: Lab) {
        // rule 2.6: it does not fail, and it causes no busy polling.
        let engine = lab.engine().machine(Tea::<1>::now()).start().await.unwrap();
        let new = lab.start(Tea::<2>::now(), 0).await.unwrap();
        let unheard_of = lab.start("coffee", Json::null()).await.unwrap().id();
        let old = lab.start(Tea::<1>::now(), 0).await.unwrap();
        assert_eq!(lab.came_to(&old).await, 11);
        let before = engine.stats().batches;
        // Time is what this is about: for so long, next to nothing is sent to the database.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let sent = engine.stats().batches - before;
        assert!(sent <= 2, "{sent} transactions in a second and a half, for work that cannot be done here");
        for id in [new.id(), unheard_of] {
            let row = lab.now(id).await;
            assert_eq!((row.status, row.attempt, row.last_error.clone()), (Status::Runnable, 0, None));
            assert_eq!(lab.kinds(id).await, ["started"]);
        }
        let newer = lab.again().await.engine().machine(Tea::<2>::now()).start().await.unwrap();
        assert_eq!(lab.came_to(&new).await, 22);
        newer.shutdown().await;
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn what_a_start_leaves_out_is_taken_from_the_newest_declaration(lab: Lab) {
        // rule 2.6
        let unknown = lab.start("tea", cups()).await.unwrap().id();
        let row = lab.now(unknown).await;
        assert_eq!((row.version, row.step.as_str(), row.queue.as_str()), (1, "start", "default"));
        // Workers that have code declare it, and the newest is remembered when they are gone.
        for version in [2, 1] {
            let engine = match version {
                1 => lab.engine().machine(Tea::<1>::now()),
                _ => lab.engine().machine(Tea::<2>::now()),
            };
            engine.start().await.unwrap().shutdown().await;
        }
        let known = lab.start("tea", cups()).await.unwrap();
        let row = lab.now(known.id()).await;
        assert_eq!((row.version, row.step.as_str(), row.status), (2, "boil", Status::Runnable));
        let given = lab.start("tea", cups()).version(7).step("sip").await.unwrap();
        let row = lab.now(given.id()).await;
        assert_eq!((row.version, row.step.as_str()), (7, "sip"));
    }
}

on_every_store! {
    async fn an_instance_is_started_and_reserved_by_a_type_alone_or_by_a_name(lab: Lab) {
        let engine = lab.engine().machine(Tea::<2>::now()).start().await.unwrap();
        // By its type: a value needs the gate, which the worker has.
        let typed = lab.start(of::<Tea<2>>(), 0).await.unwrap();
        assert_eq!(lab.came_to(&typed).await, 22);
        let named = lab.start("tea", cups()).key("tea:1").await.unwrap();
        assert_eq!(lab.came_to(&named).await.as_str(), "22");
        let error = lab.start("", cups()).await.unwrap_err();
        assert!(matches!(error, StartError::Error(Error::Refused(_))), "{error}");

        let reserved = lab.reserve("tea", "tea:2").await.unwrap();
        let opened = lab.start(of::<Tea<2>>(), 0).key("tea:2").await.unwrap();
        assert_eq!((opened.id(), lab.came_to(&opened).await), (reserved.id(), 22));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_instance_that_sleeps_keeps_its_version(lab: Lab) {
        // rule 2.6
        let later = lab.start(Tea::<1>::now(), 0).delay(hours(1)).await.unwrap();
        let engine = lab.engine().machine(Tea::<2>::now()).machine(Tea::<1>::now()).start().await.unwrap();
        assert_eq!(lab.now(later.id()).await.version, 1);
        let soon = lab.start(Tea::<1>::now(), 0).delay(abide::time::millis(20)).await.unwrap();
        assert_eq!(lab.came_to(&soon).await, 11);
        engine.shutdown().await;
    }
}
