//! A pack of three signals: the step waits again until all of them are there, and consumes them together.
//!
//! `cargo run --example collect_pack`

use abide::{Abide, BoxError, Context, Outcome, Signal, done, machine};

const NAMES: [Signal<u32>; 3] = [Signal::new("a"), Signal::new("b"), Signal::new("c")];

struct Pack;

#[machine(steps = At, output = u32)]
impl Pack {
    async fn collect(ctx: &mut Context<Self>) -> Outcome<Self> {
        if NAMES.iter().all(|&name| ctx.got(name)) {
            let values = NAMES.iter().map(|&name| ctx.awaited(name));
            done(values.sum::<Result<u32, _>>()?)
        } else {
            ctx.wait_for_any(NAMES).then(At::Collect) // consumes nothing: the pack accumulates
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?; // or "sqlite:packs.db", "postgres://…"
    let engine = abide.engine().machine(Pack).start().await?;
    let pack = abide.start(Pack, ()).key("pack:1").await?;
    for (signal, value) in NAMES.into_iter().zip([10, 20, 12]) {
        abide.signal("pack:1", signal, &value).await?;
    }
    println!("{}", pack.result().await?);
    engine.shutdown().await;
    Ok(())
}
