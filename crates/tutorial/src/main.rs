//! Runs orders until it is asked to stop.

use abide::{Abide, BoxError};
use orders::Checkout;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "sqlite:orders.db".into());
    let abide = Abide::open(&store).await?;
    let engine = abide.engine().machine(Checkout).start().await?;
    println!("orders run; ctrl-c stops");
    tokio::signal::ctrl_c().await?;
    engine.shutdown().await; // steps that run are finished, and others take over the rest at once
    Ok(())
}
