//! A workflow that waits for a condition on its own state. An update, whose argument has a default, changes the state from
//! outside.
//!
//! `cargo run --example approval_ready`

use abide::machine::Messages;
use abide::message::Arguments;
use abide::{Abide, BoxError, Flow, Message, Update, Workflow};

#[derive(Debug, Message)]
struct Ready {
    #[serde(default = "yes")]
    ready: bool,
}

fn yes() -> bool {
    true
}

const SET_READY: Update<Ready, Ready> = Update::new("set-ready");
const APPROVAL: Flow<()> =
    Flow::new("approval-workflow").messages(|| Messages::new().update(SET_READY));

async fn approval(wf: Workflow, _: ()) -> Result<(), BoxError> {
    let ready = wf.state(false);
    let set = ready.clone();
    wf.on_update(SET_READY, move |to| {
        set.set(to.ready);
        Ok(to)
    });
    wf.condition("approval.ready", || ready.get()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?; // or "sqlite:approvals.db", "postgres://…"
    let engine = abide.engine().workflow(APPROVAL, approval).start().await?;
    let run = abide.start(APPROVAL, ()).key("approval:7").await?;

    let no = Ready { ready: false };
    println!("{:?}", abide.update("approval:7", SET_READY, &no).await?);
    let view = abide.describe("approval:7").await?.ok_or("it is there")?;
    for name in view.wait.iter().flat_map(|wait| &wait.names) {
        println!("{}: {name}", view.liveness.name());
    }
    let default = abide.update("approval:7", "set-ready", Arguments::default());
    println!("{}", default.await?);
    run.result().await?;
    engine.shutdown().await;
    Ok(())
}
