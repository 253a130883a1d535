//! What to start, put together piece by piece.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use abide_core::model::{
    ContractId, Contracted, InstanceId, Key, Name, Priority, Refusal, Scope, Start, Started,
    Timestamp, UniqueKey, When,
};
use abide_core::rules::retention::CONTRACTS_NOTED;
use abide_kernel::{Answer, Op};
use futures_util::future::BoxFuture;

use super::{Client, Handle, first};
use crate::Error;
use crate::machine::{Definition, Step};

/// What to start: made by [`Abide::start`](crate::Abide::start), and then awaited; or by [`spec`], as a child or as
/// one of a batch.
#[must_use = "nothing is started before it is awaited"]
pub struct Spec<D: Definition, C = ()> {
    pub(super) start: Result<Start, Error>,
    pub(super) client: C,
    or_existing: bool,
    definition: PhantomData<fn() -> D>,
}

/// What to start, on its own: a child to [spawn](crate::Context::spawn), or one of a [batch](crate::Abide::start_all).
///
/// ```
/// # use abide::{Job, spec};
/// const MAIL: Job<String> = Job::new("mail");
/// let child = spec(MAIL, "hello".to_owned()).key("mail:1").priority(-5);
/// # let _ = child;
/// ```
pub fn spec<D: Definition>(definition: D, input: D::Input) -> Spec<D> {
    Spec::new(&definition, &input, ())
}

/// Why an instance was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The key, or the unique key, is taken. Not an error for many: see [`Spec::or_existing`].
    #[error("duplicate: the key is taken by instance {holder}")]
    Duplicate {
        /// Who has it.
        holder: InstanceId,
    },
    /// Anything else.
    #[error(transparent)]
    Error(#[from] Error),
}

impl From<Refusal> for StartError {
    fn from(refusal: Refusal) -> Self {
        Self::Error(refusal.into())
    }
}

impl<D: Definition, C> Spec<D, C> {
    pub(crate) fn new(definition: &D, input: &D::Input, client: C) -> Self {
        let start = || -> Result<Start, Error> {
            let declared = definition.declared()?;
            let state = definition.state(input).map_err(|error| Error::Mismatch {
                what: "the input",
                problem: error.to_string(),
            })?;
            let contract = match definition.agreement()? {
                Some(agreement) => Contracted::Given(Box::new(agreement.contract.clone())),
                None => Contracted::Free,
            };
            Ok(Start {
                contract,
                kind: Some(declared.kind),
                version: Some(declared.version),
                step: Some(declared.first_step),
                queue: Some(declared.queue),
                history: Some(declared.history),
                ..Start::of(declared.machine, state)
            })
        };
        Self {
            start: start(),
            client,
            or_existing: false,
            definition: PhantomData,
        }
    }

    /// Sets one thing, unless something before it was refused.
    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut Start, T)) -> Self {
        match (&mut self.start, value) {
            (Ok(start), Ok(value)) => set(start, value),
            (Ok(_), Err(refusal)) => self.start = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// The business identity: it addresses the instance, and no other can be started under it while this one lives.
    pub fn key(self, key: impl AsRef<str>) -> Self {
        self.with(Key::new(key), |start, value| start.key = Some(value))
    }

    /// In which statuses the key is taken; every one that is not terminal unless given.
    pub fn scope(self, scope: Scope) -> Self {
        self.with(Ok(scope), |start, value| start.scope = value)
    }

    /// A second identity that addresses nothing: any bytes, unique in the same way.
    pub fn unique_key(self, key: impl Into<Vec<u8>>) -> Self {
        self.with(UniqueKey::new(key), |start, value| {
            start.unique_key = Some(value)
        })
    }

    /// In which statuses the unique key is taken.
    pub fn unique_scope(self, scope: Scope) -> Self {
        self.with(Ok(scope), |start, value| start.unique_scope = value)
    }

    /// The queue; the machine's unless given.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.with(Name::new(queue), |start, value| start.queue = Some(value))
    }

    /// How urgent: lower goes first; 0 unless given.
    pub fn priority(self, priority: i16) -> Self {
        self.with(Ok(Priority(priority)), |start, value| {
            start.priority = value
        })
    }

    /// At most one instance of a partition executes at a time, in order.
    pub fn partition(self, key: impl AsRef<str>) -> Self {
        self.with(Key::new(key), |start, value| {
            start.partition_key = Some(value)
        })
    }

    /// Due after that time.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(Ok(When::After(delay)), |start, value| start.when = value)
    }

    /// Due at that moment.
    pub fn at(self, moment: Timestamp) -> Self {
        self.with(Ok(When::At(moment)), |start, value| start.when = value)
    }

    /// Begins at another step than the first.
    pub fn step(self, step: impl Step) -> Self {
        self.with(Name::new(step.name()), |start, value| {
            start.step = Some(value)
        })
    }

    /// When the key is taken, answers a handle on who has it instead of an error.
    pub fn or_existing(mut self) -> Self {
        self.or_existing = true;
        self
    }
}

impl<D: Definition> From<Spec<D>> for Result<Start, Error> {
    fn from(spec: Spec<D>) -> Self {
        spec.start
    }
}

impl<D: Definition> Spec<D, Client> {
    /// What a store's answer means to the caller.
    pub(super) fn handle(
        client: &Client,
        key: Option<Key>,
        or_existing: bool,
        started: Result<Started, Refusal>,
    ) -> Result<Handle<D::Output>, StartError> {
        match started? {
            Started::New(id) => Ok(Handle::new(client.clone(), id, key, true)),
            Started::Duplicate(id) if or_existing => {
                Ok(Handle::new(client.clone(), id, key, false))
            }
            Started::Duplicate(holder) => Err(StartError::Duplicate { holder }),
        }
    }

    pub(super) fn parts(self) -> Result<(Client, Start, bool), Error> {
        Ok((self.client, self.start?, self.or_existing))
    }

    /// Starts it inside your own transaction: it is there when that commits, and never was when it rolls back. The
    /// workers hear of it when it commits.
    ///
    /// With PostgreSQL: `abide.start(…).within(&transaction).await?`; with SQLite, which answers at once:
    /// `abide.start(…).within(&transaction)?`. When this answers an error other than a duplicate, roll back.
    ///
    /// ```
    /// # use abide::{Abide, Job};
    /// # use abide::sqlite::rusqlite::{Connection, TransactionBehavior};
    /// const SHIP: Job<u32> = Job::new("ship");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("shop.db");
    /// let abide = Abide::open(&format!("sqlite:{}", path.display())).await?;
    /// let mut mine = Connection::open(&path)?;
    /// mine.execute_batch("create table orders (id integer primary key)")?;
    ///
    /// let transaction = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// transaction.execute("insert into orders values (42)", [])?;
    /// let job = abide.start(SHIP, 42).key("order:42").within(&transaction)?;
    /// transaction.commit()?;                              // the order and its job, or neither
    /// assert!(job.get().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<T: super::Within>(
        self,
        transaction: T,
    ) -> T::Answer<Result<Handle<D::Output>, StartError>>
    where
        D: 'static,
    {
        let client = self.client.clone();
        let key = self.start.as_ref().ok().and_then(|start| start.key.clone());
        let or_existing = self.or_existing;
        let ops = self.start.map(|start| vec![Op::Start(vec![start])]);
        let on = client.clone();
        transaction.run(&on, ops, move |answers| {
            let started = match answers?.into_iter().next() {
                Some(Answer::Started(started)) => started.into_iter().next(),
                _ => None,
            };
            let started = started
                .ok_or_else(|| Error::Broken("a start was answered with something else".into()))?;
            Self::handle(&client, key, or_existing, started)
        })
    }
}

impl<D: Definition + 'static> IntoFuture for Spec<D, Client> {
    type Output = Result<Handle<D::Output>, StartError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Starts it; durable when this answers.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (client, mut start, or_existing) = self.parts()?;
            let key = start.key.clone();
            let brought = client.spare_contract(&mut start);
            let answer = client.start(vec![start]).await.and_then(first);
            let answer = answer.map_err(Error::from)?;
            client.note_contract(brought);
            Self::handle(&client, key, or_existing, answer)
        })
    }
}

impl Client {
    /// Names a contract that this process has stored, instead of sending it along once more; the id of one that is sent.
    fn spare_contract(&self, start: &mut Start) -> Option<ContractId> {
        let Contracted::Given(contract) = &start.contract else {
            return None;
        };
        let id = contract.id();
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        // After a while it is sent again, so that it is not deleted as unused (rule 16.2).
        let lately = |sent: &Instant| sent.elapsed() < CONTRACTS_NOTED;
        if stored.get(&id).is_some_and(lately) {
            start.contract = Contracted::Of(id);
            return None;
        }
        Some(id)
    }

    fn note_contract(&self, brought: Option<ContractId>) {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.extend(brought.map(|id| (id, Instant::now())));
    }
}
