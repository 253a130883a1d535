//! Machines as an `impl` block: `#[machine]`, and that it is what the trait written by hand is.

use std::time::Duration;

use abide::client::SendError;
use abide::machine::{Answer, Call, Definition, Fault, FaultKind, Retry};
use abide::time::{days, millis};
use abide::{Context, Machine, Outcome, Signal, Status, Step, Update, done, machine, next, stop};

use crate::common::{Gate, Lab};

const PAID: Signal<u32> = Signal::new("paid");
const RAISE: Update<u32, u32> = Update::new("raise");

/// Something that a machine may hold: here, the fee for the work.
trait Fee: Send + Sync + 'static {
    fn of(&self, amount: u32) -> u32;
}

struct Tenth;

impl Fee for Tenth {
    fn of(&self, amount: u32) -> u32 {
        amount / 10
    }
}

/// Uses everything that there is.
struct Sale<F> {
    fee: F,
    gate: Gate,
}

#[machine(
    steps = At, state = u32, output = u32, name = "sales", version = 3, queue = "tills",
    signals(PAID), updates(RAISE),
)]
impl<F: Fee> Sale<F> {
    /// The first is where it begins.
    async fn open(ctx: &mut Context<Self>) -> Outcome<Self> {
        ctx.wait_for(PAID).timeout(days(1)).then(At::TakeFee)
    }

    #[step(name = "fee")]
    async fn take_fee(&self, ctx: &mut Context<Self>) -> Outcome<Self> {
        let paid = ctx.awaited(PAID)?;
        if paid < *ctx.state() {
            return Err("too little".into());
        }
        *ctx.state_mut() = paid - self.fee.of(paid);
        next(At::Print)
    }

    async fn print(&self, ctx: &Context<Self>) -> Outcome<Self> {
        if ctx.attempt() == 0 {
            self.gate.pass().await; // never opened: the time limit ends it
        }
        done(*ctx.state())
    }

    async fn give_back() -> Outcome<Self> {
        stop("given back")
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        match (fault.kind(), ctx.step()) {
            (FaultKind::TimeLimit, Some(At::Print)) => ctx.retry_or_stop(&self.retry(), fault),
            (_, step) => {
                assert_eq!(step, Some(At::TakeFee));
                next(At::GiveBack)
            }
        }
    }

    async fn on_update(call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        *ctx.state_mut() += call.read(RAISE)?;
        RAISE.reply(ctx.state())
    }

    fn retry(&self) -> Retry {
        Retry::exponential(millis(1)).attempts(3)
    }

    fn time_limit(&self, at: At) -> Option<Duration> {
        (at == At::Print).then_some(millis(20))
    }
}

fn sale() -> Sale<Tenth> {
    let gate = Gate::closed();
    Sale { fee: Tenth, gate }
}

on_every_store! {
    async fn an_impl_block_is_a_machine(lab: Lab) {
        let engine = lab.engine().machine(sale()).queue("tills", 2).start().await.unwrap();
        let sold = lab.start(sale(), 50).key("sale:1").await.unwrap();
        assert_eq!(lab.update("sale:1", RAISE, &10).await.unwrap(), 60);
        let unknown = lab.signal("sale:1", Signal::<u32>::new("stolen"), &1).await;
        assert!(matches!(unknown, Err(SendError::Rejected(_))), "{unknown:?}");
        lab.signal("sale:1", PAID, &100).await.unwrap();
        assert_eq!(lab.came_to(&sold).await, 90);

        let row = lab.now(sold.id()).await;
        assert_eq!((row.machine.as_str(), row.version, row.queue.as_str()), ("sales", 3, "tills"));
        let steps = [("open".into(), 1), ("fee".into(), 2), ("print".into(), 3)];
        assert_eq!(lab.committed(sold.id()).await, steps);

        let poor = lab.start(sale(), 50).key("sale:2").await.unwrap();
        lab.signal("sale:2", PAID, &49).await.unwrap();
        assert_eq!(lab.failed_of(&poor).await, "given back");
        engine.shutdown().await;
    }
}

/// The same machine twice: once with the attribute, once by hand.
mod short {
    use super::*;

    pub struct TrialPeriod;

    #[machine(steps = Now, state = u32, output = u32)]
    impl TrialPeriod {
        async fn welcome(ctx: &mut Context<Self>) -> Outcome<Self> {
            ctx.wait_for(PAID).then(Now::AskAgain)
        }

        async fn ask_again(ctx: &mut Context<Self>) -> Outcome<Self> {
            done(*ctx.state() + ctx.awaited(PAID)?)
        }
    }
}

mod long {
    use super::*;

    #[derive(Step)]
    pub enum Now {
        Welcome,
        AskAgain,
    }

    pub struct TrialPeriod;

    impl Machine for TrialPeriod {
        const NAME: &'static str = "trial-period";
        type Step = Now;
        type State = u32;
        type Output = u32;

        async fn step(&self, at: Now, ctx: &mut Context<Self>) -> Outcome<Self> {
            match at {
                Now::Welcome => ctx.wait_for(PAID).then(Now::AskAgain),
                Now::AskAgain => done(*ctx.state() + ctx.awaited(PAID)?),
            }
        }
    }
}

on_every_store! {
    async fn an_instance_of_one_form_goes_on_with_the_other(lab: Lab) {
        let engine = lab.engine().machine(short::TrialPeriod).start().await.unwrap();
        let trial = lab.start(short::TrialPeriod, 1).key("trial:1").await.unwrap();
        lab.until_status(trial.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        let engine = lab.engine().machine(long::TrialPeriod).start().await.unwrap();
        lab.signal("trial:1", PAID, &41).await.unwrap();
        assert_eq!(lab.came_to(&trial).await, 42);
        engine.shutdown().await;
    }
}

#[test]
fn both_forms_declare_the_same() {
    let (short, long) = (short::TrialPeriod.declared(), long::TrialPeriod.declared());
    assert_eq!(format!("{short:?}"), format!("{long:?}"));
    let names = |steps: &[short::Now]| steps.iter().map(|step| step.name()).collect::<Vec<_>>();
    assert_eq!(names(short::Now::ALL), ["welcome", "ask_again"]);
}

/// A machine without a history, with a step that is left out, and with nothing but the defaults else.
struct Small;

#[machine(steps = Little, history = false)]
impl Small {
    async fn r#try() -> Outcome<Self> {
        done(())
    }

    #[cfg(any())]
    async fn never() -> Outcome<Self> {
        this_does_not_compile()
    }
}

#[test]
fn options_that_are_not_given_have_defaults() {
    assert_eq!(
        (Small::NAME, Small::VERSION, Small::QUEUE),
        ("small", 1, "default")
    );
    const { assert!(!Small::HISTORY) };
    assert_eq!(Little::ALL, [Little::Try]);
    assert_eq!(Little::Try.name(), "try");
}
