//! Opens a store by its connection string, and hands out what works on it.

use std::sync::Arc;
use std::time::Duration;

use abide_core::model::{
    Declared, Entry, Instance, InstanceId, Kind, Limits, Refusal, Start, Started, Worker,
};
use abide_core::rules::graph::{graph_of, task_machine};
use abide_kernel::committer::{Committer, Submit};
use abide_kernel::memory::Memory;
use abide_kernel::{Filter, Page, QueueDepth, Store, SystemClock, newest_run};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client::{Address, Client, Handle, Repeatable, Spec, Watch, exported, first};
use crate::engine::{Engine, EngineBuilder, Runner, Settings};
use crate::graph::{Graph, GraphProgram};
use crate::machine::{Definition, Job, JobRunner, Machine, MachineRunner};
use crate::measured::Measured;
use crate::workflow::{Flow, RunHistory, WorkflowCode, WorkflowRunner};
use crate::{BoxError, Error};

/// The way in: starts instances, looks at them, and puts engines together that run them.
///
/// Cheap to clone; all clones share one store.
#[derive(Clone)]
pub struct Abide {
    client: Client,
}

/// Why a store could not be opened.
///
/// Debug says what Display says: a `main` that returns it prints it so, and the cure is in the text.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The connection string is not one.
    #[error(
        "{url:?} is no connection string: {problem}. Write memory: , sqlite:orders.db, postgres://user@host/database or https://host"
    )]
    BadUrl {
        /// The string, without what may be a password.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The store is not there, or not fit to be used.
    #[error(transparent)]
    Error(#[from] Error),
}

impl std::fmt::Debug for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// How to open a store.
#[derive(Clone)]
pub struct OpenOptions {
    limits: Limits,
    patience: Duration,
    token: Option<String>,
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
            #[cfg(feature = "postgres")]
            postgres: abide_postgres::Options::default(),
        }
    }
}

impl OpenOptions {
    /// How large things may get.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long a call waits for a database that has gone away before it answers with an error; 10 s unless given, zero
    /// to be told at once.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The token that a server asks for; what the environment variable `ABIDE_TOKEN` says unless given.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// How a PostgreSQL store is opened; its limits are those of [`limits`](Self::limits).
    #[cfg(feature = "postgres")]
    #[must_use]
    pub fn postgres(mut self, options: abide_postgres::Options) -> Self {
        self.postgres = options;
        self
    }

    /// Opens it; see [`Abide::open`].
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
            "http" | "https" => open_remote(url, self.token.clone(), self.patience).await?,
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

    /// Works on a store that you have opened yourself, with options of its own; give the same limits to both.
    pub fn on(self, store: Arc<dyn Store>) -> Abide {
        let store: Arc<dyn Store> = Arc::new(Measured(store));
        let committer = Committer::new(store.clone());
        Abide {
            client: Client {
                submit: Submit::begin(&committer, self.patience),
                mail: Submit::begin(&committer, self.patience),
                events: Submit::begin(&committer, self.patience),
                repeatable: Repeatable::begin(&committer, self.patience),
                calls: None,
                patience: self.patience,
                committer,
                endings: Watch::begin(store.clone()),
                answers: Watch::begin(store.clone()),
                stored: Arc::default(),
                limits: self.limits,
                store,
            },
        }
    }
}

/// A connection string as an error may show it: without what may be a password.
fn shown(url: &str) -> String {
    let (place, settings) = match url.split_once('?') {
        Some((place, _)) => (place, "?…"),
        None => (url, ""),
    };
    let named = place.split_once("://");
    match named.and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, host)) => format!("{scheme}://…@{host}{settings}"),
        None => format!("{place}{settings}"),
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
    let path = std::path::PathBuf::from(path);
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

#[cfg(feature = "remote")]
async fn open_remote(
    url: &str,
    token: Option<String>,
    patience: Duration,
) -> Result<Arc<dyn Store>, OpenError> {
    let options = abide_remote::Options {
        token,
        patience,
        ..abide_remote::Options::default()
    };
    let store = abide_remote::Remote::connect(url, options)
        .await
        .map_err(Error::from)?;
    Ok(store)
}

#[cfg(not(feature = "remote"))]
async fn open_remote(
    url: &str,
    _token: Option<String>,
    _patience: Duration,
) -> Result<Arc<dyn Store>, OpenError> {
    let problem =
        "this program was built without servers: add the feature `remote` of abide".to_owned();
    Err(OpenError::BadUrl {
        url: shown(url),
        problem,
    })
}

impl Abide {
    /// Opens a store and brings its tables up to date.
    ///
    /// `memory:` lives as long as the process; `sqlite:orders.db` is a file; `postgres://user@host/database` is shared
    /// by as many processes as you like; `https://host` is a server, which keeps a store of its own (feature `remote`).
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        OpenOptions::default().open(url).await
    }

    /// How to open a store otherwise than [`open`](Self::open) does.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// Puts an engine together: a worker that runs what it has code for. There may be many, in this process and others.
    pub fn engine(&self) -> EngineBuilder {
        let Client {
            committer, mail, ..
        } = self.client.clone();
        EngineBuilder::new(committer, mail, self.client.limits.clone(), Settings::new())
    }

    /// Starts an instance: `abide.start(Checkout, order).key("order:42").await?`.
    pub fn start<D: Definition>(&self, definition: D, input: D::Input) -> Spec<D, Client> {
        Spec::new(&definition, &input, self.client.clone())
    }

    /// Starts any number of instances in one transaction, each answered for itself: what it became, whose key was
    /// taken, or why it was refused.
    ///
    /// ```
    /// # use abide::{Abide, Job, spec};
    /// const MAIL: Job<u32> = Job::new("mail");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// let started = abide.start_all((0..1_000).map(|n| spec(MAIL, n))).await?;
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

    /// Starts an instance of a machine by its name, whoever has code for it. What is left out takes the machine's newest
    /// declaration.
    pub async fn start_named(&self, start: Start) -> Result<Started, Error> {
        Ok(first(self.client.start(vec![start]).await?)??)
    }

    /// A handle on an instance that is there already; what it comes to is said by the type.
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

    /// An instance as it stands now. The id of a run that continued as new finds the newest run of its chain, unless it
    /// has a key, by which that is found: `run.number` says which run it is. [`get`](Self::get) finds just the one.
    pub async fn current(&self, target: impl Address) -> Result<Option<Instance>, Error> {
        Ok(newest_run(&*self.client.store, &target.target()?).await?)
    }

    /// One run of an instance as it stands now; of a key, the newest.
    pub async fn get(&self, target: impl Address) -> Result<Option<Instance>, Error> {
        Ok(self.client.store.get(&target.target()?).await?)
    }

    /// A page of instances, newest first: `next` of one page is `before` of the following.
    pub async fn list(
        &self,
        filter: &Filter,
        before: Option<InstanceId>,
        limit: usize,
    ) -> Result<Page<Instance>, Error> {
        Ok(self.client.store.list(filter, before, limit).await?)
    }

    /// All that has happened to an instance.
    pub async fn history(&self, id: InstanceId) -> Result<Vec<Entry>, Error> {
        crate::history::read(&*self.client.store, id).await
    }

    /// A run with its history, to keep in a file and to replay against other code, in a test say
    /// ([`assert_replays`](crate::testing::assert_replays)).
    pub async fn export(&self, target: impl Address) -> Result<Option<RunHistory>, Error> {
        let Some(instance) = self.get(target).await? else {
            return Ok(None);
        };
        let history = self.history(instance.id).await?;
        Ok(Some(exported(instance, history)))
    }

    /// The workers that are believed to live.
    pub async fn workers(&self) -> Result<Vec<Worker>, Error> {
        Ok(self.client.store.workers().await?)
    }

    /// How many instances stand where, queue by queue; finished ones are not counted.
    pub async fn depths(&self) -> Result<Vec<QueueDepth>, Error> {
        Ok(self.client.store.depths().await?)
    }

    /// Lets go of files, threads and connections, when everything that was begun is finished. Shut the engines down
    /// before.
    pub async fn close(self) {
        self.client.store.close().await;
    }

    /// What works through that client.
    pub(crate) fn over(client: Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The store itself, for what this has no word for.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.client.store
    }
}

impl Engine {
    /// Advances the runs of these graphs as well, from now on: of machines as the store lists them
    /// ([`Store::machines`]), those that are no graphs are left out. Whether any of them was new.
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
    /// engine.advance([abide::Definition::declared(&graph)?]).await?;
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
            // Graphs share those that are steps of several; what a run does is in its state.
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
