//! A store for one test, and the assertions that every test makes about it.

use std::ops::Deref;
use std::sync::Arc;

use abide::client::{Handle, NotDone};
use abide::engine::EngineBuilder;
use abide::history::{Entry, HistoryEvent};
use abide::model::Instance;
use abide::store::OpenOptions;
use abide::{Abide, InstanceId, Status};
use abide_kernel::Store;
use abide_kernel::conformance::invariants::violations;
use abide_kernel::memory::Memory;
use serde::de::DeserializeOwned;

use super::KillableEngine;
use super::wait::{self, eventually, soon};

/// A store for one test. It derefs to the [`Abide`] on it, so that `lab.start(…)` starts an instance.
#[derive(Clone)]
pub struct Lab {
    abide: Abide,
    url: Arc<str>,
    memory: Option<Arc<Memory>>,
    #[cfg(feature = "sqlite")]
    _dir: Option<Arc<tempfile::TempDir>>,
}

impl Lab {
    pub async fn memory() -> Self {
        let store = Arc::new(Memory::default());
        Self {
            abide: Abide::options().on(store.clone()),
            url: "memory:".into(),
            memory: Some(store),
            #[cfg(feature = "sqlite")]
            _dir: None,
        }
    }

    #[cfg(feature = "sqlite")]
    pub async fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", dir.path().join("test.db").display());
        Self {
            abide: Abide::open(&url).await.unwrap(),
            url: url.into(),
            memory: None,
            _dir: Some(Arc::new(dir)),
        }
    }

    #[cfg(feature = "postgres")]
    pub async fn postgres() -> Self {
        let schema = abide::postgres::plan(0);
        let taken =
            tokio::task::spawn_blocking(move || abide_pgtest::server().emptied_database(&schema));
        Self::at(&taken.await.unwrap()).await
    }

    /// Opens a database that exists already.
    pub async fn at(url: &str) -> Self {
        Self {
            abide: Abide::open(url).await.unwrap(),
            url: url.into(),
            memory: None,
            #[cfg(feature = "sqlite")]
            _dir: None,
        }
    }

    /// The connection string.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `true` on the store in memory, on which a second handle cannot be opened.
    pub fn is_memory(&self) -> bool {
        &*self.url == "memory:"
    }

    /// The store in memory, when it is one.
    pub fn in_memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// Another handle on the same database, independent of the first; on the store in memory, a clone.
    pub async fn again(&self) -> Abide {
        if self.is_memory() {
            self.abide.clone()
        } else {
            Abide::open(&self.url).await.unwrap()
        }
    }

    /// A handle that is opened otherwise, on the same database; in memory, on another store.
    pub async fn opened(&self, options: OpenOptions) -> Self {
        Self {
            abide: options.open(&self.url).await.unwrap(),
            memory: None,
            ..self.clone()
        }
    }

    /// Runs a test, and checks the invariants of the store afterwards.
    pub async fn check(self, test: impl AsyncFnOnce(Self)) {
        test(self.clone()).await;
        let store = self.store().await;
        let mut found = Vec::new();
        // A writer may still be active, and a partial read may be inconsistent.
        for _ in 0..20 {
            match violations(&*store).await {
                Ok(left) if left.is_empty() => return store.close().await,
                Ok(left) => found = left,
                Err(abide_kernel::Error::Closed) => return,
                Err(error) => panic!("the store cannot be read: {error}"),
            }
            tokio::time::sleep(wait::INTERVAL * 50).await;
        }
        panic!("the test left violated invariants:\n{}", found.join("\n"));
    }

    /// The store itself; another handle on the same database, or the one there is in memory.
    pub async fn store(&self) -> Arc<dyn Store> {
        match &self.memory {
            Some(memory) => memory.clone(),
            None => open(&self.url).await,
        }
    }

    /// Starts an engine that can be made to die: it commits nothing any more, and signs nothing off.
    pub async fn killable(
        &self,
        build: impl FnOnce(EngineBuilder) -> EngineBuilder + Send + 'static,
    ) -> KillableEngine {
        let lab = self.clone();
        KillableEngine::start(async move { build(lab.again().await.engine()) }).await
    }

    /// The instance as it stands.
    pub async fn now(&self, id: InstanceId) -> Instance {
        let found = self.abide.get(id).await.unwrap();
        found.unwrap_or_else(|| panic!("there is no instance {id}"))
    }

    /// Waits until an instance is as it should be.
    pub async fn until(
        &self,
        id: InstanceId,
        what: &str,
        mut is: impl FnMut(&Instance) -> bool,
    ) -> Instance {
        let mut last = self.now(id).await;
        let deadline = wait::deadline();
        while !is(&last) {
            if std::time::Instant::now() > deadline {
                panic!("waited for {what}, but {}", self.standing(id).await);
            }
            tokio::time::sleep(wait::INTERVAL).await;
            last = self.now(id).await;
        }
        last
    }

    /// Waits until an instance has that status.
    pub async fn until_status(&self, id: InstanceId, status: Status) -> Instance {
        let what = format!("instance {id} to be {status}");
        self.until(id, &what, |instance| instance.status == status)
            .await
    }

    /// Waits until an instance has ended.
    pub async fn ended(&self, id: InstanceId) -> Instance {
        let what = format!("instance {id} to end");
        self.until(id, &what, |instance| instance.status.is_terminal())
            .await
    }

    /// Returns the result of an instance, or the reason why it has none.
    pub async fn result<O: DeserializeOwned>(&self, handle: &Handle<O>) -> Result<O, NotDone> {
        match tokio::time::timeout(wait::PATIENCE, handle.result()).await {
            Ok(result) => result,
            Err(_) => panic!(
                "waited for a result, but {}",
                self.standing(handle.id()).await
            ),
        }
    }

    /// Returns the result of an instance, which must be done.
    pub async fn came_to<O: DeserializeOwned>(&self, handle: &Handle<O>) -> O {
        self.result(handle).await.unwrap()
    }

    /// Returns the error with which an instance failed.
    pub async fn failed_of<O: DeserializeOwned>(&self, handle: &Handle<O>) -> String {
        match self.result(handle).await {
            Err(NotDone::Failed { error, .. }) => error,
            Err(other) => panic!("it should have failed, but: {other}"),
            Ok(_) => panic!("it should have failed, but is done"),
        }
    }

    /// Waits until that many instances of all are done, and no others are left.
    pub async fn all_done(&self, ids: &[InstanceId]) {
        for id in ids {
            let ended = self.ended(*id).await;
            assert_eq!(ended.status, Status::Done, "{}", self.standing(*id).await);
        }
    }

    /// The events of an instance.
    pub async fn events(&self, id: InstanceId) -> Vec<Entry> {
        self.abide.history(id).await.unwrap()
    }

    /// Their kinds.
    pub async fn kinds(&self, id: InstanceId) -> Vec<&'static str> {
        kinds(&self.events(id).await)
    }

    /// The steps whose outcomes were committed, in order, with their numbers.
    pub async fn committed(&self, id: InstanceId) -> Vec<(String, u32)> {
        let events = self.events(id).await;
        let steps = events.iter().filter_map(|entry| match &entry.what {
            HistoryEvent::StepCompleted {
                step,
                step_sequence,
                ..
            } => Some((step.to_string(), *step_sequence)),
            _ => None,
        });
        steps.collect()
    }

    /// Describes the state of an instance, for a message.
    pub async fn standing(&self, id: InstanceId) -> String {
        let Ok(Some(instance)) = self.abide.get(id).await else {
            return format!("instance {id} is not there, or cannot be read");
        };
        let history = self.abide.history(id).await;
        let kinds = history.map(|events| kinds(&events)).unwrap_or_default();
        format!(
            "instance {id} of {} version {} is {} at step {} (number {}, attempt {}), due at {:?}, held by {:?}, \
             error {:?}, state {}; its history: {}",
            instance.machine,
            instance.version,
            instance.status,
            instance.step,
            instance.step_seq,
            instance.attempt,
            instance.due_at.map(|due| due.to_string()),
            instance.worker,
            instance.last_error,
            instance.state,
            shown(&kinds),
        )
    }

    /// Waits until that many workers are believed to be alive.
    pub async fn workers_are(&self, count: usize) {
        let what = format!("{count} workers to be left");
        eventually(&what, async || {
            soon("the workers to be read", self.abide.workers())
                .await
                .unwrap()
                .len()
                == count
        })
        .await;
    }
}

async fn open(url: &str) -> Arc<dyn Store> {
    #[cfg(feature = "sqlite")]
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.to_owned();
        let opened =
            tokio::task::spawn_blocking(|| abide::sqlite::Sqlite::open(path, Default::default()));
        return opened.await.unwrap().unwrap();
    }
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres") {
        let opened = abide::postgres::Postgres::connect(url, Default::default());
        return Arc::new(opened.await.unwrap());
    }
    panic!("there is no store at {url}")
}

/// The last of many events.
fn shown(kinds: &[&str]) -> String {
    const MOST: usize = 30;
    let last = kinds
        .split_at(kinds.len().saturating_sub(MOST))
        .1
        .join(", ");
    if kinds.len() > MOST {
        format!("{} events, and in the end {last}", kinds.len())
    } else {
        last
    }
}

fn kinds(events: &[Entry]) -> Vec<&'static str> {
    events.iter().map(|entry| entry.what.kind()).collect()
}

impl Deref for Lab {
    type Target = Abide;

    fn deref(&self) -> &Abide {
        &self.abide
    }
}
