//! Opens a store by its connection string; the main functions of `Abide` and of the engine builder.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use abide_core::model::{
    Declared, Entry, Instance, InstanceId, Kind, Limits, Refusal, Start, Started, Worker,
};
use abide_core::rules::graph::{graph_of, task_machine};
use abide_kernel::committer::{Committer, Submit};
use abide_kernel::memory::Memory;
use abide_kernel::{Filter, Page, QueueDepth, Store, SystemClock, Tally, newest_run};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Address, Client, Handle, Parts, Repeatable, StartBuilder, Watch};
use crate::engine::{Engine, EngineBuilder, Runner, Settings};
use crate::graph::{Graph, GraphProgram};
use crate::machine::{Definition, Job, JobRunner, Machine, MachineRunner, Startable};
use crate::measured::Measured;
use crate::workflow::{Flow, RunHistory, WorkflowCode, WorkflowRunner};
use crate::{BoxError, Error};

/// The entry point: starts instances, reads them, and builds engines that run them.
///
/// Cheap to clone; all clones share one store.
#[derive(Clone)]
pub struct Abide {
    client: Client,
}

/// The reason why a store could not be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The connection string is invalid.
    #[error(
        "{url:?} is not a connection string: {problem}. Write memory: , sqlite:orders.db, postgres://user@host/database or https://host"
    )]
    BadUrl {
        /// The string, without anything that may be a password.
        url: String,
        /// The problem with it.
        problem: String,
    },
    /// The store cannot be reached, or cannot be used.
    #[error(transparent)]
    Error(#[from] Error),
}

/// Options for opening a store.
#[derive(Clone)]
pub struct OpenOptions {
    limits: Limits,
    patience: Duration,
    token: Option<String>,
    authorities: Option<PathBuf>,
    #[cfg(feature = "postgres")]
    postgres: abide_postgres::Options,
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions")
            .field("limits", &self.limits)
            .field("patience", &self.patience)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .finish()
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            patience: Duration::from_secs(10),
            token: None,
            authorities: None,
            #[cfg(feature = "postgres")]
            postgres: abide_postgres::Options::default(),
        }
    }
}

impl OpenOptions {
    /// Sets the limits on sizes and counts.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long a call waits for an unavailable database before it returns an error; 10 s by default, zero to
    /// return the error at once.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets the bearer token for a server. By default it is the value of the environment variable `ABIDE_TOKEN`, or
    /// else the contents of the file that `ABIDE_TOKEN_FILE` names.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets a PEM file with the certificate authorities to trust for a server (`https://…`); by default those that the
    /// system trusts. For PostgreSQL, write `sslrootcert` in the URL.
    #[must_use]
    pub fn authorities(mut self, file: impl Into<PathBuf>) -> Self {
        self.authorities = Some(file.into());
        self
    }

    /// Sets the options of a PostgreSQL store. Its limits are those of [`limits`](Self::limits).
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(mut self, options: abide_postgres::Options) -> Self {
        self.postgres = options;
        self
    }

    /// Opens the store; see [`Abide::open`].
    pub async fn open(self, url: &str) -> Result<Abide, OpenError> {
        let bad = |problem: &str| OpenError::BadUrl {
            url: shown(url),
            problem: problem.to_owned(),
        };
        let (scheme, rest) = url
            .split_once(':')
            .ok_or_else(|| bad("it does not say which store"))?;
        let store: Arc<dyn Store> = match scheme {
            "memory" if rest.is_empty() => Arc::new(Memory::new(
                Arc::new(SystemClock::default()),
                self.limits.clone(),
            )),
            "memory" => return Err(bad("memory: takes nothing after it")),
            "sqlite" => open_sqlite(rest, url, self.limits.clone()).await?,
            "postgres" | "postgresql" => self.open_postgres(url).await?,
            "http" | "https" => self.open_remote(url).await?,
            _ => return Err(bad("there is no such store")),
        };
        Ok(self.on(store))
    }

    #[cfg(feature = "postgres")]
    async fn open_postgres(&self, url: &str) -> Result<Arc<dyn Store>, OpenError> {
        let options = abide_postgres::Options {
            limits: self.limits.clone(),
            ..self.postgres.clone()
        };
        let store = abide_postgres::Postgres::connect(url, options)
            .await
            .map_err(Error::from)?;
        Ok(Arc::new(store))
    }

    #[cfg(not(feature = "postgres"))]
    async fn open_postgres(&self, url: &str) -> Result<Arc<dyn Store>, OpenError> {
        let problem =
            "this program was built without PostgreSQL: add the feature `postgres` of abide";
        Err(OpenError::BadUrl {
            url: shown(url),
            problem: problem.to_owned(),
        })
    }

    #[cfg(feature = "remote")]
    async fn open_remote(&self, url: &str) -> Result<Arc<dyn Store>, OpenError> {
        let options = abide_remote::Options {
            token: self.token.clone(),
            patience: self.patience,
            authorities: self.authorities.clone(),
            ..abide_remote::Options::default()
        };
        let store = abide_remote::Remote::connect(url, options)
            .await
            .map_err(Error::from)?;
        Ok(store)
    }

    #[cfg(not(feature = "remote"))]
    async fn open_remote(&self, url: &str) -> Result<Arc<dyn Store>, OpenError> {
        let problem = "this program was built without servers: add the feature `remote` of abide";
        Err(OpenError::BadUrl {
            url: shown(url),
            problem: problem.to_owned(),
        })
    }

    /// Uses a store that you have opened yourself, with options of its own. Give the same limits to both.
    pub fn on(self, store: Arc<dyn Store>) -> Abide {
        let store: Arc<dyn Store> = Arc::new(Measured(store));
        let committer = Committer::new(store.clone());
        Abide {
            client: Client::new(Parts {
                submit: Submit::begin(&committer, self.patience),
                commands: Submit::begin(&committer, self.patience),
                events: Submit::begin(&committer, self.patience),
                repeatable: Repeatable::begin(&committer, self.patience),
                patience: self.patience,
                committer,
                endings: Watch::begin(store.clone()),
                answers: Watch::begin(store.clone()),
                stored: Arc::default(),
                checked_for_worker: AtomicI64::new(i64::MIN),
                limits: self.limits,
                store,
            }),
        }
    }
}

/// Returns a connection string as an error may show it: without anything that may be a password.
fn shown(url: &str) -> String {
    let (location, settings) = match url.split_once('?') {
        Some((location, _)) => (location, "?…"),
        None => (url, ""),
    };
    let named = location.split_once("://");
    match named.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}{settings}"),
        None => format!("{location}{settings}"),
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str, url: &str, limits: Limits) -> Result<Arc<dyn Store>, OpenError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path == ":memory:" {
        let problem = "it names no file; for a store in memory write memory:".to_owned();
        return Err(OpenError::BadUrl {
            url: shown(url),
            problem,
        });
    }
    let options = abide_sqlite::Options {
        limits,
        ..abide_sqlite::Options::default()
    };
    let path = PathBuf::from(path);
    let opened =
        tokio::task::spawn_blocking(move || abide_sqlite::Sqlite::open(path, options)).await;
    let store = opened.map_err(|_| Error::Broken("opening the file panicked".into()))?;
    Ok(store.map_err(Error::from)?)
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(_path: &str, url: &str, _limits: Limits) -> Result<Arc<dyn Store>, OpenError> {
    let problem =
        "this program was built without SQLite: add the feature `sqlite` of abide".to_owned();
    Err(OpenError::BadUrl {
        url: shown(url),
        problem,
    })
}

impl Abide {
    /// Opens a store and migrates its tables to the current schema.
    ///
    /// `memory:` exists as long as the process; `sqlite:orders.db` is a file; `postgres://user@host/database` is shared
    /// by any number of processes; `https://host` is a server, which has a store of its own (feature `remote`).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        OpenOptions::default().open(url).await
    }

    /// Returns options to open a store in another way than [`open`](Self::open) does.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// Returns a builder of an engine: a worker that runs the machines it has code for. There may be many engines, in
    /// this process and in others.
    pub fn engine(&self) -> EngineBuilder {
        let client = &self.client;
        EngineBuilder::new(
            client.committer.clone(),
            client.commands.clone(),
            client.limits.clone(),
            Settings::new(),
        )
    }

    /// Starts an instance: `abide.start(Checkout, order).key("order:42").await?`.
    ///
    /// A machine, a job, a workflow or a graph is started with an input of its type. So is a machine's type alone:
    /// [`machine::of::<Mailer>()`](crate::machine::of). A machine's name, without a Rust type, is started with JSON, also
    /// if this process has no code for it: `abide.start("checkout", json!({"item": "kettle"}).into()).await?`. What is left
    /// out then is taken from the machine's newest declaration, and the result is JSON.
    pub fn start<D: Startable>(&self, definition: D, input: D::Input) -> StartBuilder<D, Client> {
        StartBuilder::new(&definition, &input, self.client.clone())
    }

    /// Starts any number of instances in one transaction. Each gets its own result: the new instance, the holder of a
    /// key that is taken, or the reason why the start was refused. Takes what [`new_start`](crate::client::new_start)
    /// returns, or starts as data: `Ok(start)`.
    ///
    /// ```
    /// # use abide::client::new_start;
    /// # use abide::{Abide, Job};
    /// const MAIL: Job<u32> = Job::new("mail");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// let started = abide.start_all((0..1_000).map(|n| new_start(MAIL, n))).await?;
    /// assert_eq!(started.len(), 1_000);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn start_all<S: Into<Result<Start, Error>>>(
        &self,
        specs: impl IntoIterator<Item = S>,
    ) -> Result<Vec<Result<Started, Refusal>>, Error> {
        let starts: Vec<Start> = specs
            .into_iter()
            .map(Into::into)
            .collect::<Result<_, _>>()?;
        Ok(self.client.start(starts).await?)
    }

    /// Returns a handle on an existing instance, or `None` if there is none. `O` is the type of its result.
    pub async fn handle<O: DeserializeOwned>(
        &self,
        target: impl Address,
    ) -> Result<Option<Handle<O>>, Error> {
        let found = self.get(target).await?;
        Ok(
            found
                .map(|instance| Handle::new(self.client.clone(), instance.id, instance.key, false)),
        )
    }

    /// Returns an instance as it is now. The id of an ended run without a key finds the newest run of its chain;
    /// `run.number` says which run it is. To find the newest run of an instance with a key, use the key.
    /// [`get`](Self::get) returns exactly the run with the id.
    pub async fn current(&self, target: impl Address) -> Result<Option<Instance>, Error> {
        Ok(newest_run(&*self.client.store, &target.target()?).await?)
    }

    /// Returns one run of an instance as it is now; for a key, the newest run.
    pub async fn get(&self, target: impl Address) -> Result<Option<Instance>, Error> {
        Ok(self.client.store.get(&target.target()?).await?)
    }

    /// Returns a page of instances, newest first. Pass `next` of one page as `before` of the following one.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<Instance>, Error> {
        Ok(self.client.store.list(filter, before, limit).await?)
    }

    /// Returns all history events of an instance.
    pub async fn history(&self, id: InstanceId) -> Result<Vec<Entry>, Error> {
        crate::history::read(&*self.client.store, id).await
    }

    /// Returns a run with its history, to save in a file and to replay against other code, for example in a test
    /// ([`assert_replays`](crate::testing::assert_replays)).
    pub async fn export(&self, target: impl Address) -> Result<Option<RunHistory>, Error> {
        let Some(instance) = self.get(target).await? else {
            return Ok(None);
        };
        let history = self.history(instance.id).await?;
        Ok(Some(RunHistory::of(instance, history)))
    }

    /// Returns the workers that are believed to be alive.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        Ok(self.client.store.workers().await?)
    }

    /// Returns the number of instances in each status, queue by queue. Finished instances are not counted.
    pub async fn depths(&self) -> Result<Vec<QueueDepth>, Error> {
        Ok(self.client.store.depths().await?)
    }

    /// Returns how many instances are blocked or failing, and how many have ended and are still stored. It reads all
    /// open instances.
    pub async fn tally(&self) -> Result<Tally, Error> {
        Ok(self.client.store.tally().await?)
    }

    /// Closes the store: finishes everything that was begun, then releases files, threads and connections. Shut the
    /// engines down first.
    pub async fn close(self) {
        self.client.store.close().await;
    }

    /// Makes an `Abide` that uses that client.
    pub(crate) fn over(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the store itself, for operations that `Abide` does not offer.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.client.store
    }
}

impl Engine {
    /// Also advances the runs of these graphs from now on. `machines` may be all machines that the store lists
    /// ([`Store::machines`]); those that are not graphs are ignored. Returns `true` if any graph was new.
    ///
    /// ```
    /// # use abide::{Abide, Graph};
    /// # use serde_json::{Value, json};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// let engine = abide
    ///     .engine()
    ///     .queue("default", 64)
    ///     .task("double", |number: i64| async move { Ok(number * 2) })
    ///     .start()
    ///     .await?;
    /// let graph = Graph::builder("later").task("double").build()?;
    /// let run = abide.start(graph.clone(), json!(21)).await?;
    /// engine.advance([abide::machine::Definition::declared(&graph)?]).await?;
    /// assert_eq!(run.result().await?, json!({"double": 42}));
    /// # engine.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn advance(
        &self,
        machines: impl IntoIterator<Item = Declared>,
    ) -> Result<bool, Error> {
        let graphs = machines
            .into_iter()
            .filter(|one| one.kind == Kind::Workflow && graph_of(one.machine.as_str()).is_some());
        let runners = graphs.map(|declared| {
            let program = Arc::new(GraphProgram {
                store: self.store().clone(),
            });
            let (store, limits) = (self.store().clone(), self.limits().clone());
            let declared = Ok((declared, None));
            Arc::new(WorkflowRunner::of(declared, program, store, limits)) as Arc<dyn Runner>
        });
        self.learn(runners.collect()).await
    }
}

impl EngineBuilder {
    /// Runs a machine.
    pub fn machine<M: Machine>(self, machine: M) -> Self {
        self.runner(|store| Arc::new(MachineRunner::new(machine, store)))
    }

    /// Runs a job: one async function.
    pub fn job<A, O, F, R>(self, job: Job<A, O>, code: F) -> Self
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send,
    {
        self.runner(|store| Arc::new(JobRunner::new(job, code, &*store)))
    }

    /// Advances the runs of a graph, and of the graphs that are steps of it.
    pub fn graph(mut self, graph: &Graph) -> Self {
        for graph in graph.family() {
            let limits = self.limits().clone();
            let declared = Definition::declared(&graph).map(|declared| (declared, None));
            // Several graphs may share a step that is a graph. One runner is enough: the program of a run is in its
            // state.
            if declared.as_ref().is_ok_and(|(one, _)| self.has(one)) {
                continue;
            }
            self = self.runner(|store| {
                let program = Arc::new(GraphProgram {
                    store: store.clone(),
                });
                Arc::new(WorkflowRunner::of(declared, program, store, limits))
            });
        }
        self
    }

    /// Runs a task of graphs, by its name: one async function, from its input to its output.
    pub fn task<A, O, F, R>(self, name: &str, code: F) -> Self
    where
        A: Serialize + DeserializeOwned + Send + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
        F: Fn(A) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, BoxError>> + Send,
    {
        self.job(Job::named(task_machine(name)), code)
    }

    /// Runs a workflow: an `async fn` that takes a [`Workflow`](crate::Workflow) and the input.
    pub fn workflow<I, O>(self, flow: Flow<I, O>, code: impl WorkflowCode<I, O>) -> Self
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let limits = self.limits().clone();
        self.runner(|store| Arc::new(WorkflowRunner::new(flow, code, store, limits)))
    }
}
