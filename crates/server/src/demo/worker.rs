//! A worker process of the demo: an engine with the samples, over HTTP, that ends with its parent.

use std::io::{Read, Write};
use std::time::Duration;

use abide::{Abide, Engine, Error, OpenError, Retention};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{album, approval, checkout, name_of, parcel};
use crate::serve::Told;

/// How long a worker is believed to live after its last sign of life: short, so that one sees others take over.
pub const LEASE: Duration = Duration::from_secs(3);
/// How many steps of a worker run at once.
const CONCURRENCY: usize = 8;
/// How long steps that run may take to end when it is told to stop.
const GRACE: Duration = Duration::from_secs(1);
/// How long it may take to end in all.
const END: Duration = Duration::from_secs(2);
/// How often it tells its parent what it has done.
const TELL: Duration = Duration::from_millis(250);

/// What a worker tells its parent, a line of JSON each time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Word {
    /// How many steps it has committed.
    pub committed: u64,
}

/// Runs steps until it is told to stop, or its parent is gone: then its standard input ends, whatever became of it.
pub async fn run(store: &str, number: u32) -> Result<(), OpenError> {
    let (gone, parent) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(std::io::stdin().read(&mut rest), Ok(read) if read > 0) {}
        // It may have ended by itself.
        let _ = gone.send(());
    });
    let mut told = Told::listen().map_err(|error| Error::Broken(error.to_string()))?;
    let abide = Abide::options().patience(END).open(store).await?;
    let engine = engine(&abide, number).await?;
    tokio::select! {
        _ = parent => {}
        () = told.stop() => {}
        () = tell(&engine) => {}
    }
    // There may be no server any more to sign off from.
    let _ = tokio::time::timeout(END, engine.shutdown()).await;
    Ok(())
}

async fn engine(abide: &Abide, number: u32) -> Result<Engine, Error> {
    let engine = abide
        .engine()
        .name(&name_of(number))
        .lease(LEASE)
        .grace(GRACE)
        // The server sweeps.
        .retention(Retention::Forever)
        .machine(checkout::Checkout)
        .workflow(approval::APPROVAL, approval::approval)
        .machine(album::Album)
        .job(album::RESIZE, album::resize);
    let engine = parcel::tasks(engine).queue("default", CONCURRENCY);
    engine.start().await
}

/// Tells the parent what was done, until it does not listen any more.
async fn tell(engine: &Engine) {
    loop {
        let word = Word {
            committed: engine.stats().committed,
        };
        let line = serde_json::to_string(&word).unwrap_or_default();
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            return;
        }
        tokio::time::sleep(TELL).await;
    }
}
