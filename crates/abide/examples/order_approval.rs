//! An order that waits for an approval: straight-line code, on a file that other processes can signal.
//!
//! `cargo run --example order_approval` starts it and waits;
//! `cargo run --example order_approval -- Taylor` in another terminal approves it.

use abide::machine::Messages;
use abide::{Abide, BoxError, Flow, Message, Signal, Workflow};
use serde_json::{Value, json};

#[derive(Message)]
struct Approval {
    approved_by: String,
}

const APPROVED_BY: Signal<Approval> = Signal::new("approved-by");
const ORDER_APPROVAL: Flow<(), Value> =
    Flow::new("order-approval").messages(|| Messages::new().signal(APPROVED_BY));

async fn order_approval(wf: Workflow, _: ()) -> Result<Value, BoxError> {
    let Approval { approved_by } = wf.signal(APPROVED_BY).await?;
    Ok(json!({"approved_by": approved_by, "workflow_id": wf.key(), "run_id": wf.id()}))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "sqlite:approvals.db".into());
    let abide = Abide::open(&store).await?;
    match std::env::args().nth(1) {
        None => wait(abide).await,
        Some(approved_by) => approve(abide, Approval { approved_by }).await,
    }
}

async fn wait(abide: Abide) -> Result<(), BoxError> {
    let engine = abide.engine().workflow(ORDER_APPROVAL, order_approval);
    let engine = engine.start().await?;
    let order = abide.start(ORDER_APPROVAL, ()).key("order-123");
    let order = order.or_existing().await?;
    println!("order-123 waits for its approval");
    println!("{}", order.result().await?);
    engine.shutdown().await;
    Ok(())
}

/// Needs no code of the workflow: the contract is stored with the run.
async fn approve(abide: Abide, approval: Approval) -> Result<(), BoxError> {
    let receipt = abide.signal("order-123", APPROVED_BY, &approval).await?;
    println!("{}, command {}", receipt.outcome(), receipt.id());
    abide.close().await;
    Ok(())
}
