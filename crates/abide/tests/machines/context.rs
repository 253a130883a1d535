//! The position that a step, its error handler and its update handler know.

use abide::machine::{Answer, Call, Fault, Messages, reply};
use abide::time::minutes;
use abide::{Context, Machine, Outcome, Signal, Status, Step, Update, done, next, stop};
use serde_json::json;

use crate::common::Lab;

const NOTE: Signal<String> = Signal::new("note");
const GO: Signal<()> = Signal::new("go");
const WHERE: Update<(), String> = Update::new("where");

#[derive(Debug, Step)]
enum At {
    First,
    Waits,
    Breaks,
}

/// Reports its position.
struct Traveller;

fn position(ctx: &Context<Traveller>) -> String {
    format!("{} {} {:?}", ctx.machine(), ctx.version(), ctx.step())
}

impl Machine for Traveller {
    const NAME: &'static str = "traveller";
    const VERSION: u32 = 3;
    type Step = At;
    type State = String;
    type Output = String;

    fn messages() -> Messages {
        Messages::new().signal(NOTE).signal(GO).update(WHERE)
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::First => {
                *ctx.state_mut() = position(ctx);
                ctx.wait_for(GO).timeout(minutes(5)).then(At::Waits)
            }
            At::Waits => {
                let notes = ctx.inbox_all(NOTE).await?;
                ctx.state_mut().push_str(&format!("; {notes:?}"));
                next(At::Breaks)
            }
            At::Breaks if ctx.attempt() > 9 => done(String::new()),
            At::Breaks => Err("broken".into()),
        }
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        stop(format!("{}; {fault} at {}", ctx.state(), position(ctx)))
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        assert!(call.is(WHERE));
        reply(&position(ctx))
    }
}

on_every_store! {
    async fn a_context_knows_its_machine_version_and_step(lab: Lab) {
        // rules 4.1 and 5.2: in a step, in the handler of an error, and in the handler of an update
        let engine = lab.engine().machine(Traveller).start().await.unwrap();
        let run = lab.start(Traveller, String::new()).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        assert_eq!(lab.update(&run, WHERE, &()).await.unwrap(), "traveller 3 Some(Waits)");
        for text in ["a", "b"] {
            let receipt = lab.signal(run.id(), NOTE, &text.to_owned()).await.unwrap();
            assert_eq!(receipt.outcome(), "signal_received");
            assert_eq!(receipt.record.payload(), json!(text).into());
        }
        lab.signal(run.id(), GO, &()).await.unwrap();
        let error = lab.failed_of(&run).await;
        let expected = "traveller 3 Some(First); [\"a\", \"b\"]; broken at traveller 3 Some(Breaks)";
        assert_eq!(error, expected);
        engine.shutdown().await;
    }
}
