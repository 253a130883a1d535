//! Builds that come and go: what one cannot run waits for another, and nothing is lost meanwhile (rule 12.4).

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::history::HistoryEvent;
use abide::machine::{Answer, Call, Messages};
use abide::machine::{Fault, next_in};
use abide::model::CommandStatus;
use abide::model::{Json, Liveness, Name};
use abide::time::{hours, millis, secs};
use abide::{
    Context, Error, Event, InstanceId, Job, Machine, Outcome, Signal, Status, Step, Update, done,
    next,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::common::{Lab, eventually};

/// Waits until no build that runs could run an instance, and returns the reason.
async fn blocked(lab: &Lab, id: InstanceId) -> String {
    let row = lab
        .until(id, "it to be blocked", |row| {
            row.status.is_terminal() || row.is_blocked()
        })
        .await;
    assert!(row.is_blocked(), "{}", lab.standing(id).await);
    let view = lab.describe(id).await.unwrap().unwrap();
    assert_eq!(view.liveness, Liveness::Blocked);
    view.reason.unwrap().text
}

async fn times_blocked(lab: &Lab, id: InstanceId) -> usize {
    let events = lab.events(id).await;
    events
        .iter()
        .filter(|one| matches!(one.what, HistoryEvent::Blocked { .. }))
        .count()
}

const PAID: Signal<u32> = Signal::new("paid");
const NOTE: Update<String, usize> = Update::new("note");

#[derive(Step)]
enum At {
    Wait,
    Ship,
}

/// Counts the calls of its error handler.
#[derive(Clone, Default)]
struct Shop {
    handled: Arc<AtomicUsize>,
}

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
}

impl Machine for Shop {
    const NAME: &'static str = "shop";
    type Step = At;
    type State = Order;
    type Output = (String, u32, u32);

    fn messages() -> Messages {
        Messages::new().signal(PAID).update(NOTE)
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Wait => ctx.wait_for(PAID).then(At::Ship),
            At::Ship => done((ctx.state().item.clone(), ctx.awaited(PAID)?, ctx.attempt())),
        }
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        ctx.state_mut().item.push_str(&call.read(NOTE)?);
        NOTE.reply(&ctx.state().item.len())
    }

    async fn on_error(&self, error: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        abide::stop(error.to_string())
    }
}

/// The same machine, with a field more.
#[derive(Clone, Default)]
struct NewShop(Shop);

#[derive(Serialize, Deserialize)]
struct NewOrder {
    item: String,
    currency: String,
}

impl Machine for NewShop {
    const NAME: &'static str = "shop";
    type Step = At;
    type State = NewOrder;
    type Output = (String, u32, u32);

    fn messages() -> Messages {
        Shop::messages()
    }

    async fn step(&self, _: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        done((ctx.state().currency.clone(), 0, 0))
    }

    async fn on_update(&self, _: &Call<'_>, _: &mut Context<Self>) -> Answer<Self> {
        NOTE.reply(&0)
    }

    async fn on_error(&self, error: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        self.0.handled.fetch_add(1, Ordering::SeqCst);
        abide::stop(error.to_string())
    }
}

fn kettle() -> Order {
    Order {
        item: "kettle".to_owned(),
    }
}

on_every_store! {
    async fn a_state_that_a_build_cannot_read_waits_for_one_that_can(lab: Lab) {
        // rules 12.4, 5.2 and 7.6: a field was added, and the build is rolled back
        let old = lab.engine().build("1").machine(Shop::default()).start().await.unwrap();
        let order = lab.start(Shop::default(), kettle()).key("order:1").await.unwrap();
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        old.shutdown().await;
        let new = NewShop::default();
        let engine = lab.engine().build("2").machine(new.clone()).start().await.unwrap();
        let paid = lab.signal(&order, PAID, &7).await.unwrap();
        let why = blocked(&lab, order.id()).await;
        assert!(why.contains("the state of shop version 1 does not match its type: `currency` is missing"), "{why}");
        assert!(why.contains("build 2"), "{why}");
        let record = lab.commands("order:1", None, 9).await.unwrap().items.into_iter().find(|one| one.id == paid.id());
        let record = record.unwrap();
        assert_eq!((record.status, record.step_sequence), (CommandStatus::Received, None), "no step ran with it");
        assert_eq!(new.0.handled.load(Ordering::SeqCst), 0, "the error handler is not called");
        // More comes, and waits with it.
        lab.signal(&order, PAID, &8).await.unwrap();
        engine.shutdown().await;
        let engine = lab.engine().build("1").machine(Shop::default()).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, ("kettle".to_owned(), 7, 0), "the same signal, and no attempt was counted");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_update_to_a_state_that_cannot_be_read_waits_too(lab: Lab) {
        // rules 12.4 and 9.2
        let old = lab.engine().build("1").machine(Shop::default()).start().await.unwrap();
        let order = lab.start(Shop::default(), kettle()).await.unwrap();
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        old.shutdown().await;
        let engine = lab.engine().build("2").machine(NewShop::default()).start().await.unwrap();
        let update = lab.update(&order, NOTE, &"!".to_owned()).accepted().await.unwrap();
        blocked(&lab, order.id()).await;
        // A build that fits, and that runs beside it, answers.
        let old = lab.engine().build("1").machine(Shop::default()).start().await.unwrap();
        assert_eq!(update.answer_within(secs(20)).await.unwrap(), 7);
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        old.shutdown().await;
    }
}

#[derive(Step)]
enum OldWay {
    Begin,
}

#[derive(Step)]
enum NewWay {
    Begin,
    Pack,
    Label,
}

/// A machine as it was, whose first step goes where only the next build can follow: as one does that was begun by that.
struct OldWalk;

impl Machine for OldWalk {
    const NAME: &'static str = "walk";
    type Step = OldWay;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: OldWay, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        next(OldWay::Begin)
    }
}

/// The machine as it is, with two steps more.
struct NewWalk;

impl Machine for NewWalk {
    const NAME: &'static str = "walk";
    type Step = NewWay;
    type State = u32;
    type Output = u32;

    async fn step(&self, at: NewWay, ctx: &mut Context<Self>) -> Outcome<Self> {
        assert_eq!(ctx.attempt(), 0, "nothing was counted");
        *ctx.state_mut() += 1;
        match at {
            NewWay::Begin => next(NewWay::Pack),
            // So that it goes through the queue, where the old build sees it.
            NewWay::Pack => next_in(millis(1), NewWay::Label),
            NewWay::Label => done(*ctx.state()),
        }
    }
}

on_every_store! {
    async fn old_and_new_builds_together_run_all_to_the_end(lab: Lab) {
        // rules 12.4 and 2.6: a rolling deploy that adds steps
        let other = lab.again().await;
        let old = lab.engine().build("old").machine(OldWalk).start().await.unwrap();
        let new = other.engine().build("new").machine(NewWalk).start().await.unwrap();
        let begun = (0..40).map(|n| abide::client::new_start(NewWalk, n).step(NewWay::Pack));
        let begun = lab.start_all(begun).await.unwrap();
        let ids: Vec<InstanceId> = begun.into_iter().map(|one| one.unwrap().id()).collect();
        lab.all_done(&ids).await;
        for (n, id) in ids.into_iter().enumerate() {
            let row = lab.now(id).await;
            assert_eq!(row.result.as_ref().unwrap().as_str(), (n + 2).to_string());
            assert_eq!(row.unfit, [] as [Name; 0]);
            let kinds = lab.kinds(id).await;
            assert!(!kinds.contains(&"step_failed") && !kinds.contains(&"retried"), "{kinds:?}");
            let times = times_blocked(&lab, id).await;
            assert!(times <= 2, "once for each step, and not {times} times");
        }
        old.shutdown().await;
        new.shutdown().await;
    }
}

on_every_store! {
    async fn what_nothing_fits_waits_and_is_not_tried_again_and_again(lab: Lab) {
        // rule 12.4
        let first = lab.engine().build("old").machine(OldWalk).start().await.unwrap();
        let second = lab.engine().build("old").machine(OldWalk).start().await.unwrap();
        let order = lab.start(NewWalk, 0).step(NewWay::Pack).key("walk:1").await.unwrap();
        let why = blocked(&lab, order.id()).await;
        assert!(why.contains(r#"machine walk version 1 has no step "pack"; its steps are begin"#), "{why}");
        // Another instance goes through the same engines meanwhile, and this one is left alone.
        let third = lab.engine().build("other").machine(OldWalk).start().await.unwrap();
        eventually("the third to have tried", async || times_blocked(&lab, order.id()).await == 2).await;
        blocked(&lab, order.id()).await;
        assert_eq!(lab.now(order.id()).await.unfit, ["old", "other"].map(|name| Name::new(name).unwrap()));
        assert_eq!(lab.now(order.id()).await.attempt, 0);
        lab.cancel("walk:1", "not wanted").await.unwrap();
        for engine in [first, second, third] {
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn two_builds_of_one_name_help_each_other_when_they_start(lab: Lab) {
        // rule 12.4: neither is given a name, and both are in this program
        let old = lab.engine().machine(OldWalk).start().await.unwrap();
        let order = lab.start(NewWalk, 0).step(NewWay::Pack).await.unwrap();
        blocked(&lab, order.id()).await;
        old.shutdown().await;
        let new = lab.engine().machine(NewWalk).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, 2);
        new.shutdown().await;
    }
}

on_every_store! {
    async fn a_repair_lets_a_build_try_again(lab: Lab) {
        // rules 12.4 and 11.3
        let engine = lab.engine().machine(OldWalk).start().await.unwrap();
        let order = lab.start(NewWalk, 0).step(NewWay::Pack).await.unwrap();
        blocked(&lab, order.id()).await;
        lab.repair(order.id()).await.unwrap();
        eventually("it to be blocked again", async || times_blocked(&lab, order.id()).await == 2).await;
        blocked(&lab, order.id()).await;
        engine.shutdown().await;
    }
}

const CALLED: Signal<String> = Signal::new("called");

/// Reads a signal as what it is not.
struct Deaf;

#[derive(Debug, thiserror::Error)]
#[error("the caller was not understood")]
struct Misheard(#[source] Error);

impl Machine for Deaf {
    const NAME: &'static str = "deaf";
    type Step = At;
    type State = bool;
    type Output = u32;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        const AS_A_NUMBER: Signal<u32> = Signal::new("called");
        match at {
            At::Wait => ctx.wait_for(CALLED).then(At::Ship),
            // Also when it is the cause of an error of the machine's own.
            At::Ship if *ctx.state() => done(ctx.awaited(AS_A_NUMBER).map_err(Misheard)?),
            At::Ship => done(ctx.awaited(AS_A_NUMBER)?),
        }
    }
}

/// Reads an event as what it is not.
struct DeafToEvents;

impl Machine for DeafToEvents {
    const NAME: &'static str = "deaf_to_events";
    type Step = At;
    type State = ();
    type Output = Option<u32>;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Wait => ctx
                .wait_for_event(Event::new("rung"))
                .timeout(hours(1))
                .then(At::Ship),
            At::Ship => done(ctx.event()?),
        }
    }
}

const WEIGHED: Job<(), String> = Job::new("weigh");

/// Reads the result of its child as an `R`.
struct Scales<R>(PhantomData<fn() -> R>);

impl<R: Serialize + DeserializeOwned + Send + 'static> Machine for Scales<R> {
    const NAME: &'static str = "scales";
    type Step = At;
    type State = ();
    type Output = Vec<R>;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Wait => ctx
                .spawn([abide::client::new_start(WEIGHED, ())])
                .then(At::Ship),
            At::Ship => {
                let mut weights = Vec::new();
                for child in ctx.children() {
                    weights.extend(ctx.child_result(child)?);
                }
                done(weights)
            }
        }
    }

    async fn on_error(&self, error: &Fault, _: &mut Context<Self>) -> Outcome<Self> {
        abide::stop(format!("the error handler was called: {error}"))
    }
}

on_every_store! {
    async fn a_result_of_a_child_that_a_build_cannot_read_waits_for_one_that_can(lab: Lab) {
        // rule 12.4: it was an error of the step, and the instance failed for good
        let weigh = |(): ()| async { Ok("two pounds".to_owned()) };
        let numbers = Scales::<u32>(PhantomData);
        let first = lab.engine().build("1").machine(numbers).job(WEIGHED, weigh).start().await.unwrap();
        let order = lab.start(Scales::<String>(PhantomData), ()).await.unwrap();
        let why = blocked(&lab, order.id()).await;
        assert!(why.contains("the result of a child does not match its type: weigh "), "{why}");
        assert_eq!(lab.now(order.id()).await.attempt, 0);
        first.shutdown().await;
        let texts = Scales::<String>(PhantomData);
        let second = lab.engine().build("2").machine(texts).job(WEIGHED, weigh).start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, ["two pounds"], "the same child, and no attempt was counted");
        second.shutdown().await;
    }
}

on_every_store! {
    async fn an_event_that_a_build_cannot_read_blocks_and_is_not_consumed(lab: Lab) {
        // rule 12.4
        let engine = lab.engine().machine(DeafToEvents).start().await.unwrap();
        let call = lab.start(DeafToEvents, ()).await.unwrap();
        lab.until_status(call.id(), Status::AwaitingSignal).await;
        assert_eq!(lab.publish("rung", &"hello").await.unwrap().matched, 1);
        let why = blocked(&lab, call.id()).await;
        assert!(why.contains("the payload of an event does not match its type"), "{why}");
        let records = lab.commands(call.id(), None, 9).await.unwrap().items;
        let statuses: Vec<CommandStatus> = records.iter().map(|one| one.status).collect();
        assert_eq!(statuses, [CommandStatus::Received]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_payload_that_a_build_cannot_read_blocks_and_is_not_consumed(lab: Lab) {
        // rule 12.4
        let engine = lab.engine().machine(Deaf).start().await.unwrap();
        for wrapped in [false, true] {
            let call = lab.start(Deaf, wrapped).await.unwrap();
            let called = lab.signal(&call, CALLED, &"hello".to_owned()).await.unwrap();
            let why = blocked(&lab, call.id()).await;
            assert!(wrapped || why.contains("the value of a signal does not match its type: called"), "{why}");
            let records = lab.commands(call.id(), None, 9).await.unwrap();
            let record = records.items.into_iter().find(|one| one.id == called.id()).unwrap();
            assert_eq!(record.status, CommandStatus::Received);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn arguments_that_a_job_cannot_read_wait_for_a_build_that_can(lab: Lab) {
        // rule 12.4
        const NEW: Job<(u32, u32), u32> = Job::new("add");
        const OLD: Job<u32, u32> = Job::new("add");
        let old = lab.engine().job(OLD, |n: u32| async move { Ok(n) }).build("old").start().await.unwrap();
        let sum = lab.start(NEW, (3, 4)).await.unwrap();
        let why = blocked(&lab, sum.id()).await;
        assert!(why.contains("the arguments of job add do not fit"), "{why}");
        let new = lab.engine().job(NEW, |(a, b): (u32, u32)| async move { Ok(a + b) }).build("new");
        let new = new.start().await.unwrap();
        assert_eq!(lab.came_to(&sum).await, 7);
        old.shutdown().await;
        new.shutdown().await;
    }
}

on_every_store! {
    async fn a_check_tells_what_a_build_could_not_run_and_changes_nothing(lab: Lab) {
        // rule 12.4
        let old = lab.engine().build("1").machine(Shop::default()).start().await.unwrap();
        let order = lab.start(Shop::default(), kettle()).key("order:1").await.unwrap();
        lab.until_status(order.id(), Status::AwaitingSignal).await;
        let strange = lab.start("walk", Json::of(&1).unwrap()).step("label").queue("unserved").await.unwrap();
        let before = (lab.now(order.id()).await, lab.now(strange.id()).await);

        let new = lab.engine().build("2").machine(NewShop::default()).machine(OldWalk);
        let check = new.check().await.unwrap();
        assert_eq!((check.checked, check.fits()), (2, false));
        let problems: Vec<(InstanceId, &str)> = check.unfit.iter().map(|one| (one.id, one.problem.as_str())).collect();
        assert_eq!(problems, [
            (order.id(), "the state of shop version 1 does not match its type: `currency` is missing"),
            (strange.id(), r#"machine walk version 1 has no step "label"; its steps are begin"#),
        ]);
        assert_eq!((check.unfit[0].step.as_str(), check.unfit[0].key.as_ref().unwrap().as_str()), ("ship", "order:1"));
        assert!(lab.engine().machine(Shop::default()).machine(NewWalk).check().await.unwrap().fits());
        assert_eq!((lab.now(order.id()).await, lab.now(strange.id()).await), before);
        let workers = lab.workers().await.unwrap();
        assert_eq!(workers.len(), 1, "it has not registered");
        old.shutdown().await;
    }
}
