//! The server's own engine: advances graphs, fires timers, takes back the claims of dead workers, and sweeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide::engine::Retention;
use abide::model::Name;
use abide::{Abide, Error};
use abide_kernel::Effects;
use abide_kernel::rules::graph::graph_of;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often to check for graphs that were declared at other servers.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Number of graph runs per queue that are advanced concurrently.
const CONCURRENCY: usize = 64;
/// Maximum number of queues that are served.
const QUEUES_MAX: usize = 1_000;
/// The default queue of graphs.
const QUEUE: &str = "default";

/// Maximum number of characters of the host name in the server's name.
const HOST_MAX: usize = 63;

/// The options of the engine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name among the workers.
    pub name: Name,
    /// How long finished instances are kept.
    pub retention: Retention,
    /// How long a shutdown waits for running work.
    pub grace: Duration,
}

/// Notifies the engine that a graph was declared at this server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Put(Arc<Notify>);

impl Put {
    /// Reports that a graph was declared.
    pub fn notify(&self) {
        self.0.notify_one();
    }
}

/// The running engine.
pub struct Engine {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Engine {
    /// Starts the engine with all declared graphs. Later graphs are added when they are declared.
    pub async fn start(abide: &Abide, options: Options, put: Put) -> Result<Self, Error> {
        let store = abide.store().clone();
        // The subscription begins before the first read, so that no notification is missed between the two.
        let listener = store.listen();
        let engine = abide
            .engine()
            .without_code()
            .name(options.name.as_str())
            .queue(QUEUE, CONCURRENCY)
            .retention(options.retention)
            .grace(options.grace)
            .start()
            .await?;
        let stop = CancellationToken::new();
        let mut keeper = Keeper {
            abide: abide.clone(),
            engine,
            queues: BTreeSet::new(),
            graphs: false,
        };
        keeper.reload().await?;
        if keeper.graphs {
            keeper.find_queues().await?;
        }
        let task = tokio::spawn(keeper.keep(listener, put, stop.clone()));
        Ok(Self { stop, task })
    }

    /// Stops the engine in order: running work is finished within the grace time, the rest is given back.
    pub async fn shutdown(self) {
        self.stop.cancel();
        // A panic of the task was already reported.
        let _ = self.task.await;
    }
}

/// Updates the engine with the current graphs, and with the queues that they may run in.
struct Keeper {
    abide: Abide,
    engine: abide::engine::Engine,
    queues: BTreeSet<Name>,
    /// `true` if there are any graphs.
    graphs: bool,
}

impl Keeper {
    async fn keep(
        mut self,
        mut listener: abide_kernel::Listener,
        put: Put,
        stop: CancellationToken,
    ) {
        let mut interval = tokio::time::interval(CHECK_INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first tick completes at once, and the first read has already happened.
        interval.tick().await;
        loop {
            let checked = tokio::select! {
                () = stop.cancelled() => break,
                () = put.0.notified() => self.reload().await,
                _ = interval.tick() => self.reload().await,
                effects = listener.next() => match effects {
                    Some(effects) => self.handle(&effects).await,
                    None => break,
                },
            };
            if let Err(error) = checked {
                tracing::warn!(%error, "new graphs could not be read; trying again");
            }
        }
        self.engine.shutdown().await;
    }

    /// Reads the declared graphs.
    async fn reload(&mut self) -> Result<(), Error> {
        let mut machines = self.abide.store().machines().await?;
        machines.retain(|one| graph_of(one.machine.as_str()).is_some());
        let had = self.graphs;
        self.graphs |= !machines.is_empty();
        self.engine.advance(machines).await?;
        if self.graphs && !had {
            self.find_queues().await?;
        }
        Ok(())
    }

    /// Serves all queues that contain instances, because a run may have been started in any of them.
    async fn find_queues(&mut self) -> Result<(), Error> {
        let queues: BTreeSet<Name> = self
            .abide
            .depths()
            .await?
            .into_iter()
            .map(|one| one.queue)
            .collect();
        self.serve(queues).await
    }

    async fn handle(&mut self, effects: &Effects) -> Result<(), Error> {
        match self.graphs && !effects.ready.is_empty() {
            true => self.serve(effects.ready.iter().cloned()).await,
            false => Ok(()),
        }
    }

    async fn serve(&mut self, queues: impl IntoIterator<Item = Name>) -> Result<(), Error> {
        for queue in queues {
            if queue.as_str() != QUEUE
                && !self.queues.contains(&queue)
                && self.queues.len() < QUEUES_MAX
            {
                self.engine.serve(queue.clone(), CONCURRENCY).await?;
                self.queues.insert(queue);
            }
        }
        Ok(())
    }
}

/// The default name of a server among the workers: its host and the address on which it listens. No other process
/// listens there, and the same server does after a restart.
pub fn name(address: std::net::SocketAddr) -> Name {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    // Removes characters that a name may not contain.
    let host: String = host
        .chars()
        .filter(|c| !c.is_control())
        .take(HOST_MAX)
        .collect();
    Name::stored(format!("server-{host}-{address}"))
}
