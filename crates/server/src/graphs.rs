//! The server's own engine: it advances graphs, fires timers, takes back what dead workers held, and sweeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide::{Abide, Error, Name, Retention};
use abide_kernel::Effects;
use abide_kernel::rules::graph::graph_of;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often to look for graphs that were put at other servers.
const LOOK: Duration = Duration::from_secs(5);
/// How many runs of graphs of one queue are advanced at once.
const CONCURRENCY: usize = 64;
/// The most queues that are served.
const QUEUES_MAX: usize = 1_000;
/// The queue that graphs run in unless their starts say otherwise.
const QUEUE: &str = "default";

/// The longest part of a host's name that goes into the server's.
const HOST_MAX: usize = 63;

/// How the engine behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name among the workers.
    pub name: Name,
    /// How long finished instances are kept.
    pub retention: Retention,
    /// How long a shutdown waits for what runs.
    pub grace: Duration,
}

/// Told when a graph was put at this server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Put(Arc<Notify>);

impl Put {
    /// A graph was put.
    pub fn tell(&self) {
        self.0.notify_one();
    }
}

/// The running engine.
pub struct Engine {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Engine {
    /// Starts it: with all graphs that are declared, and later ones as they come.
    pub async fn start(abide: &Abide, options: Options, put: Put) -> Result<Self, Error> {
        let store = abide.store().clone();
        // Listening begins before the first look, so that nothing can fall between the two.
        let news = store.listen();
        let engine = abide
            .engine()
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
        keeper.look().await?;
        if keeper.graphs {
            keeper.find_queues().await?;
        }
        let task = tokio::spawn(keeper.keep(news, put, stop.clone()));
        Ok(Self { stop, task })
    }

    /// Stops it in order: what runs is finished within the grace time, the rest is given back.
    pub async fn shutdown(self) {
        self.stop.cancel();
        // A task that panicked has said so already.
        let _ = self.task.await;
    }
}

/// Keeps the engine up with the graphs there are, and with the queues that they may run in.
struct Keeper {
    abide: Abide,
    engine: abide::Engine,
    queues: BTreeSet<Name>,
    /// Whether there are any graphs.
    graphs: bool,
}

impl Keeper {
    async fn keep(mut self, mut news: abide_kernel::Listener, put: Put, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first is at once, and has been.
        look.tick().await;
        loop {
            let looked = tokio::select! {
                () = stop.cancelled() => break,
                () = put.0.notified() => self.look().await,
                _ = look.tick() => self.look().await,
                effects = news.next() => match effects {
                    Some(effects) => self.hear(&effects).await,
                    None => break,
                },
            };
            if let Err(error) = looked {
                tracing::warn!(%error, "new graphs could not be looked up; trying again");
            }
        }
        self.engine.shutdown().await;
    }

    /// Looks what graphs there are.
    async fn look(&mut self) -> Result<(), Error> {
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

    /// Serves all queues that anything is in: a run may have been started in any of them.
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

    async fn hear(&mut self, effects: &Effects) -> Result<(), Error> {
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

/// The name of a server among the workers unless it is told one: that of its host, and where it listens. No other process
/// listens there, and one that is started again does.
pub fn name(address: std::net::SocketAddr) -> Name {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    // What no name may be made of is left out.
    let host: String = host
        .chars()
        .filter(|c| !c.is_control())
        .take(HOST_MAX)
        .collect();
    Name::stored(format!("server-{host}-{address}"))
}
