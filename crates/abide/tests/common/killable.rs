//! An engine that dies as a process does: between two instructions, with everything that it holds.

use std::sync::mpsc;
use std::time::Duration;

use abide::engine::{Engine, EngineBuilder, Stats};
use tokio::runtime::{Builder, Runtime};

/// An engine on its own runtime, which can be stopped at any moment.
pub struct KillableEngine {
    engine: Option<Engine>,
    runtime: Option<Runtime>,
}

impl KillableEngine {
    pub(super) async fn start(build: impl Future<Output = EngineBuilder> + Send + 'static) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let started = runtime.spawn(async move { build.await.start().await.unwrap() });
        Self {
            engine: Some(started.await.unwrap()),
            runtime: Some(runtime),
        }
    }

    pub fn stats(&self) -> Stats {
        self.engine.as_ref().unwrap().stats()
    }

    /// Kills it. Nothing of it runs any more when this returns.
    pub async fn die(mut self) {
        let runtime = self.runtime.take().unwrap();
        let (dead, wait) = mpsc::channel::<()>();
        // Not in an async context, where a runtime must not be waited for.
        std::thread::spawn(move || {
            runtime.shutdown_timeout(Duration::from_secs(5));
            drop(dead);
        });
        tokio::task::spawn_blocking(move || wait.recv())
            .await
            .unwrap()
            .unwrap_err();
    }
}

impl Drop for KillableEngine {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
