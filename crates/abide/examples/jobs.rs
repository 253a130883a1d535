//! Plain jobs: one async function each, with a retry policy.
//!
//! `cargo run --example jobs`

use std::sync::atomic::{AtomicU32, Ordering};

use abide::client::new_start;
use abide::prelude::*;

const RESIZE: Job<String, String> =
    Job::new("resize").retry(Retry::exponential(millis(5)).cap(millis(100)));

/// The number of calls of the flaky service.
static CALLS: AtomicU32 = AtomicU32::new(0);

async fn resize(path: String) -> Result<String, BoxError> {
    if CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
        return Err("the image service is busy".into());
    }
    Ok(path.replace(".png", ".small.png"))
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?;
    let engine = abide
        .engine()
        .job(RESIZE, resize)
        .queue("default", 8)
        .start()
        .await?;

    // One by one, with a handle on each …
    let kettle = abide
        .start(RESIZE, "kettle.png".into())
        .key("image:kettle")
        .await?;
    println!("{}", kettle.result().await?);

    // … or a thousand in one transaction.
    let started = abide
        .start_all((0..1_000).map(|n| new_start(RESIZE, format!("{n}.png"))))
        .await?;
    for one in started {
        let job = abide
            .handle::<String>(one?.id())
            .await?
            .ok_or("it was just started")?;
        job.result().await?;
    }
    println!("1000 more, in {} calls", CALLS.load(Ordering::Relaxed));

    engine.shutdown().await;
    Ok(())
}
