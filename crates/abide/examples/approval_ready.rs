//! A workflow that waits until its own state says so; an update changes that from outside, and is answered.
//!
//! `cargo run --example approval_ready`

use abide::{Abide, BoxError, Flow, Messages, Query, Update, Workflow};

const SET_READY: Update<bool, bool> = Update::new("set-ready");
const IS_READY: Query<(), bool> = Query::new("is-ready");
const APPROVAL: Flow<()> =
    Flow::new("approval-workflow").messages(|| Messages::new().update(SET_READY));

async fn approval(wf: Workflow, _: ()) -> Result<(), BoxError> {
    let ready = wf.state(false);
    wf.on_update(SET_READY, {
        let ready = ready.clone();
        move |value| {
            ready.set(value);
            Ok(ready.get())
        }
    });
    wf.on_query(IS_READY, {
        let ready = ready.clone();
        move |()| Ok(ready.get())
    });
    wf.condition("approval.ready", || ready.get()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let abide = Abide::open("memory:").await?; // or "sqlite:approvals.db", "postgres://…"
    let engine = abide.engine().workflow(APPROVAL, approval).start().await?;
    let run = abide.start(APPROVAL, ()).key("approval:7").await?;

    println!(
        "set to {}",
        abide.update("approval:7", SET_READY, &false).await?
    );
    let look = abide.look("approval:7").await?.ok_or("it is there")?;
    let names: Vec<String> = look
        .wait
        .iter()
        .flat_map(|wait| &wait.names)
        .map(ToString::to_string)
        .collect();
    println!("{}: {}", look.liveness.name(), names.join(", "));
    println!(
        "set to {}",
        abide.update("approval:7", SET_READY, &true).await?
    );
    run.result().await?;
    println!(
        "ready: {}",
        engine.query("approval:7", IS_READY, &()).await?
    );
    engine.shutdown().await;
    Ok(())
}
