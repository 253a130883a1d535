//! An order that waits for somebody's approval: straight-line code, on a file that other processes can signal.
//!
//! `cargo run --example order_approval` starts it and waits;
//! `cargo run --example order_approval -- approve Taylor` in another terminal lets it go on.

use abide::schemars::JsonSchema;
use abide::{Abide, BoxError, Flow, Messages, Signal, Workflow};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "abide::schemars")]
struct Approval {
    approved_by: String,
}

const APPROVED_BY: Signal<Approval> = Signal::new("approved-by");
const ORDER_APPROVAL: Flow<(), Approved> =
    Flow::new("order-approval").messages(|| Messages::new().signal(APPROVED_BY));

#[derive(Debug, Serialize, Deserialize)]
struct Approved {
    approved_by: String,
    key: String,
    run: String,
}

async fn order_approval(wf: Workflow, _: ()) -> Result<Approved, BoxError> {
    let Approval { approved_by } = wf.signal(APPROVED_BY).await?;
    Ok(Approved {
        approved_by,
        key: wf.key().map(ToString::to_string).unwrap_or_default(),
        run: wf.id().to_string(),
    })
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let abide = Abide::open("sqlite:approvals.db").await?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => wait(abide).await,
        ["approve", name] => approve(abide, name).await,
        _ => Err("say nothing, or: approve NAME".into()),
    }
}

/// Starts the order, unless it waits already, and runs it.
async fn wait(abide: Abide) -> Result<(), BoxError> {
    let engine = abide.engine().workflow(ORDER_APPROVAL, order_approval);
    let engine = engine.start().await?;
    let order = abide.start(ORDER_APPROVAL, ()).key("order-123");
    let order = order.or_existing().await?;
    println!("order-123 waits for its approval");
    println!("{:?}", order.result().await?);
    engine.shutdown().await;
    Ok(())
}

/// Signals it, by its key, from wherever this runs: there is no code for the workflow here, and its contract holds.
async fn approve(abide: Abide, name: &str) -> Result<(), BoxError> {
    let approved_by = name.to_owned();
    let approval = Approval { approved_by };
    let receipt = abide.signal("order-123", APPROVED_BY, &approval).await?;
    println!("{}, command {}", receipt.record.outcome(), receipt.id());
    abide.close().await;
    Ok(())
}
