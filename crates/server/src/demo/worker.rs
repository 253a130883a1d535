//! A worker process of the demo: an engine with the samples, over HTTP, that ends with its parent.

use std::io::{Read, Write};
use std::time::Duration;

use abide::engine::{Engine, Retention};
use abide::store::OpenError;
use abide::{Abide, Error};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::{album, approval, checkout, name_of, parcel};
use crate::serve::StopSignals;

/// The lease of a worker. It is short, so that the user sees other workers take over.
pub const LEASE: Duration = Duration::from_secs(3);
/// Number of steps that a worker runs concurrently.
const CONCURRENCY: usize = 8;
/// How long running steps may take to end at a shutdown.
const GRACE: Duration = Duration::from_secs(1);
/// Time limit for the whole shutdown.
const END: Duration = Duration::from_secs(2);
/// How often it reports to its parent.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// A report of a worker to its parent: one line of JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Number of steps that it has committed.
    pub committed: u64,
}

/// Runs steps until it is asked to stop, or its parent is gone. In that case its standard input ends, however the
/// parent ended.
pub async fn run(store: &str, number: u32) -> Result<(), OpenError> {
    let (gone, parent) = oneshot::channel();
    std::thread::spawn(move || {
        let mut rest = [0; 64];
        while matches!(std::io::stdin().read(&mut rest), Ok(read) if read > 0) {}
        // The receiver may be gone, if the worker has ended by itself.
        let _ = gone.send(());
    });
    let mut signals = StopSignals::listen().map_err(|error| Error::Broken(error.to_string()))?;
    let abide = Abide::options().patience(END).open(store).await?;
    let engine = engine(&abide, number).await?;
    tokio::select! {
        _ = parent => {}
        () = signals.stop() => {}
        () = report_to_parent(&engine) => {}
    }
    // The server may already be gone.
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

/// Reports to the parent, until the parent no longer reads.
async fn report_to_parent(engine: &Engine) {
    loop {
        let report = Report {
            committed: engine.stats().committed,
        };
        let line = serde_json::to_string(&report).unwrap_or_default();
        if writeln!(std::io::stdout().lock(), "{line}").is_err() {
            return;
        }
        tokio::time::sleep(REPORT_INTERVAL).await;
    }
}
