//! A step that fails: a retry policy for errors that pass, an error handler for errors that do not.
//!
//! `cargo run --example errors`

use abide::machine::Fault;
use abide::prelude::*;

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error("the bank does not answer")]
    Busy,
    #[error("the card is declined")]
    Declined,
}

/// Stands for a bank: busy twice, and then it declines.
fn charge(attempt: u32) -> Result<(), ChargeError> {
    if attempt < 2 {
        Err(ChargeError::Busy)
    } else {
        Err(ChargeError::Declined)
    }
}

struct Payment;

#[machine(steps = At, output = String)]
impl Payment {
    async fn charge(ctx: &mut Context<Self>) -> Outcome<Self> {
        // A real one would be given ctx.token(), which is the same when the step is run again.
        charge(ctx.attempt())?;
        done("paid".into())
    }

    async fn apologise() -> Outcome<Self> {
        done("not paid, and sorry".into())
    }

    async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
        println!("attempt {}: {fault}", ctx.attempt());
        match fault.downcast_ref() {
            Some(ChargeError::Declined) => next(At::Apologise),
            _ => ctx.retry_or_stop(&self.retry(), fault),
        }
    }

    fn retry(&self) -> Retry {
        Retry::exponential(millis(10)).cap(secs(1)).attempts(5)
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?;
    let engine = abide.engine().machine(Payment).start().await?;
    let payment = abide.start(Payment, ()).await?;
    println!("{}", payment.result().await?);
    for entry in payment.history().await? {
        println!("{:>3} {}", entry.seq, entry.what.kind());
    }
    engine.shutdown().await;
    Ok(())
}
