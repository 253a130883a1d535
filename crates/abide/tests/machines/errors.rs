//! Steps that fail or panic, and their error handlers.

use std::sync::Arc;
use std::time::Duration;

use abide::machine::{Fault, FaultKind};
use abide::{BoxError, Context, Machine, Outcome, Status, Step};
use abide::{done, next};
use serde::{Deserialize, Serialize};

use crate::common::{At, Lab, Log, Script};

/// Fails in as many ways as there are steps, and notes the faults that its error handler gets.
#[derive(Clone, Default)]
struct Clumsy {
    faults: Log<(FaultKind, String)>,
    handler: Handler,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Handler {
    #[default]
    GoesOn,
    Fails,
    Panics,
}

#[derive(Step)]
enum Way {
    Error,
    Panic,
    PanicBeforeAnything,
    GoOn,
}

#[derive(Debug, thiserror::Error)]
#[error("the till is shut")]
struct Shut(#[source] std::io::Error);

fn shut() -> BoxError {
    Shut(std::io::Error::other("the key is lost")).into()
}

impl Machine for Clumsy {
    const NAME: &'static str = "clumsy";
    type Step = Way;
    type State = u32;
    type Output = u32;

    // Not an `async fn`: what comes before the first await panics in the call itself.
    #[allow(clippy::manual_async_fn, reason = "that is what is tested")]
    fn step(&self, at: Way, ctx: &mut Context<Self>) -> impl Future<Output = Outcome<Self>> + Send {
        assert!(!matches!(at, Way::PanicBeforeAnything), "before anything");
        async move {
            *ctx.state_mut() += 1;
            match at {
                Way::Error => Err(shut()),
                Way::Panic => panic!("out of tea on attempt {}", ctx.attempt()),
                Way::PanicBeforeAnything | Way::GoOn => done(*ctx.state()),
            }
        }
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        assert_eq!(
            fault.downcast_ref::<Shut>().is_some(),
            fault.kind() == FaultKind::Error
        );
        self.faults.note((fault.kind(), fault.to_string()));
        match self.handler {
            Handler::GoesOn => {
                *ctx.state_mut() += 10;
                next(Way::GoOn)
            }
            Handler::Fails => Err("the handler has no till either".into()),
            Handler::Panics => panic!("no handler at all"),
        }
    }
}

on_every_store! {
    async fn the_error_handler_is_called_and_answers_as_it_likes(lab: Lab) {
        // rule 5.2
        let clumsy = Clumsy::default();
        let engine = lab.engine().machine(clumsy.clone()).start().await.unwrap();
        let order = lab.start(clumsy.clone(), 0).await.unwrap();
        // The handler finds the state as the step found it: what the step added is gone.
        assert_eq!(lab.came_to(&order).await, 11);
        assert_eq!(clumsy.faults.read(), [(FaultKind::Error, "the till is shut: the key is lost".into())]);
        assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "step_completed", "done"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_panic_is_an_error_of_its_step_and_of_no_other(lab: Lab) {
        // rule 5.2
        let clumsy = Clumsy::default();
        let engine = lab.engine().machine(clumsy.clone()).start().await.unwrap();
        let order = lab.start(clumsy.clone(), 0).step(Way::Panic).await.unwrap();
        let early = lab.start(clumsy.clone(), 0).step(Way::PanicBeforeAnything).await.unwrap();
        let sound = lab.start(clumsy.clone(), 0).step(Way::GoOn).await.unwrap();
        assert_eq!(lab.came_to(&sound).await, 1);
        assert_eq!((lab.came_to(&order).await, lab.came_to(&early).await), (11, 11));
        let mut faults = clumsy.faults.read();
        faults.sort_by(|a, b| a.1.cmp(&b.1));
        let panicked = |text: &str| (FaultKind::Panic, format!("panicked: {text}"));
        assert_eq!(faults, [panicked("before anything"), panicked("out of tea on attempt 0")]);
        assert_eq!(lab.kinds(early.id()).await, ["started", "step_failed", "step_completed", "done"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_handler_that_fails_too_stops_the_instance_with_both_messages(lab: Lab) {
        // rule 5.2
        for (handler, expected) in [
            (Handler::Fails, "the handler has no till either"),
            (Handler::Panics, "panicked: no handler at all"),
        ] {
            let clumsy = Clumsy { handler, ..Clumsy::default() };
            let engine = lab.engine().machine(clumsy.clone()).start().await.unwrap();
            let order = lab.start(clumsy.clone(), 0).await.unwrap();
            let error = lab.failed_of(&order).await;
            assert!(error.contains("the key is lost") && error.contains(expected), "{error}");
            assert_eq!(clumsy.faults.len(), 1, "the handler is called once");
            assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "failed"]);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn without_a_handler_an_error_stops_the_instance(lab: Lab) {
        // rule 5.2
        let engine = lab.engine().machine(Script::new(|at, ctx| {
            *ctx.state_mut() = serde_json::json!("changed");
            match at {
                At::One => Err(shut()),
                _ => panic!("no tea"),
            }
        }));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), "as it was".into()).await.unwrap();
        assert_eq!(lab.failed_of(&order).await, "the till is shut: the key is lost");
        assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "failed"]);
        // The state of a step that fails is not stored.
        assert_eq!(lab.now(order.id()).await.state.as_str(), "\"as it was\"");
        let order = lab.start(Script::any(), "x".into()).step(At::Two).await.unwrap();
        assert_eq!(lab.failed_of(&order).await, "panicked: no tea");
        engine.shutdown().await;
    }
}

/// Panics wherever the engine calls it but in its step.
struct Trap;

#[derive(Step)]
enum Where {
    TimeLimit,
    Reading,
    Writing,
}

/// A state that panics when it is read as 1 or written as 2.
struct Touchy(u32);

impl Serialize for Touchy {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, 2, "not to be written");
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Touchy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let read = u32::deserialize(from)?;
        assert_ne!(read, 1, "not to be read");
        Ok(Self(read))
    }
}

impl Machine for Trap {
    const NAME: &'static str = "trap";
    type Step = Where;
    type State = Touchy;
    type Output = u32;

    async fn step(&self, at: Where, ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.state_mut().0 = 2;
        next(at)
    }

    fn time_limit(&self, at: Where) -> Option<Duration> {
        assert!(!matches!(at, Where::TimeLimit), "no time limit to be had");
        None
    }
}

on_every_store! {
    async fn whatever_of_a_machine_panics_it_is_an_error_of_the_step(lab: Lab) {
        // rule 5.2
        let engine = lab.engine().machine(Trap).start().await.unwrap();
        for (at, state, expected) in [
            (Where::TimeLimit, 0, "no time limit to be had"),
            (Where::Reading, 1, "not to be read"),
            (Where::Writing, 0, "not to be written"),
        ] {
            let order = lab.start(Trap, Touchy(state)).step(at).await.unwrap();
            let error = lab.failed_of(&order).await;
            assert!(error.starts_with("panicked: ") && error.contains(expected), "{error}");
            assert_eq!(lab.kinds(order.id()).await, ["started", "step_failed", "failed"]);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_very_long_error_is_cut(lab: Lab) {
        // rule 16.3
        let engine = lab.engine().machine(Script::new(|_, _| Err("né\0".repeat(100_000).into())));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), 0.into()).await.unwrap();
        let error = lab.failed_of(&order).await;
        assert!(error.len() < 20_000 && error.contains("bytes in all"), "{} bytes", error.len());
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn the_engine_survives_a_thousand_panics(lab: Lab) {
        // rule 5.2
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = count.clone();
        let engine = lab.engine().machine(Script::new(move |_, _| {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            // A panic that prints nothing.
            std::panic::resume_unwind(Box::new("again"))
        }));
        let engine = engine.start().await.unwrap();
        let started = lab.start_all((0..1_000).map(|n| abide::client::new_start(Script::any(), n.into()))).await.unwrap();
        for one in started {
            assert_eq!(lab.ended(one.unwrap().id()).await.status, Status::Failed);
        }
        assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1_000);
        engine.shutdown().await;
    }
}
