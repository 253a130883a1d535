//! The builder of a start.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use abide_core::model::{
    ContractId, Contracted, InstanceId, Key, Name, Priority, Refusal, RetrySpec, Scope, Start,
    Started, Timestamp, UniqueKey, When,
};
use abide_core::rules::retention::CONTRACTS_NOTED;
use abide_kernel::{Answer, Op};
use futures_util::future::BoxFuture;

use super::{Client, Handle, first};
use crate::Error;
use crate::machine::{Startable, StepName};
use crate::time::as_ms;

/// A builder of a start. [`Abide::start`](crate::Abide::start) returns one to configure and then await; [`new_start`] makes
/// one for a child or a batch.
#[must_use = "nothing is started before it is awaited"]
pub struct StartBuilder<D: Startable, C = ()> {
    pub(super) start: Result<Start, Error>,
    pub(super) client: C,
    or_existing: bool,
    definition: PhantomData<fn() -> D>,
}

/// Describes an instance to start: a child to [spawn](crate::Context::spawn), or one of a
/// [batch](crate::Abide::start_all). [`Abide::start`](crate::Abide::start) says of what.
///
/// ```
/// # use abide::Job;
/// # use abide::client::new_start;
/// const MAIL: Job<String> = Job::new("mail");
/// let child = new_start(MAIL, "hello".to_owned()).key("mail:1").priority(-5);
/// # let _ = child;
/// ```
pub fn new_start<D: Startable>(definition: D, input: D::Input) -> StartBuilder<D> {
    StartBuilder::new(&definition, &input, ())
}

/// The reason why an instance was not started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The key or the unique key is taken. If you want the instance that has it, use [`StartBuilder::or_existing`].
    #[error(
        "duplicate: the key is taken by instance {holder}; use another key, or `.or_existing()` to get that instance"
    )]
    Duplicate {
        /// The instance that holds it.
        holder: InstanceId,
    },
    /// Any other error.
    #[error(transparent)]
    Error(#[from] Error),
}

impl From<Refusal> for StartError {
    fn from(refusal: Refusal) -> Self {
        Self::Error(refusal.into())
    }
}

impl<D: Startable, C> StartBuilder<D, C> {
    pub(crate) fn new(definition: &D, input: &D::Input, client: C) -> Self {
        Self {
            start: definition.start(input),
            client,
            or_existing: false,
            definition: PhantomData,
        }
    }

    /// Sets a field, unless an earlier value was refused.
    fn with<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut Start, T)) -> Self {
        match (&mut self.start, value) {
            (Ok(start), Ok(value)) => set(start, value),
            (Ok(_), Err(refusal)) => self.start = Err(refusal.into()),
            (Err(_), _) => {}
        }
        self
    }

    /// Sets the key: the name that your business knows the instance by. It is an address of the instance. No other
    /// instance can be started with it until this one has ended, or as the scope says.
    pub fn key(self, key: impl AsRef<str>) -> Self {
        self.with(Key::new(key), |start, value| start.key = Some(value))
    }

    /// Sets the statuses in which the key is taken; by default every status that is not terminal.
    pub fn scope(self, scope: Scope) -> Self {
        self.with(Ok(scope), |start, value| start.scope = value)
    }

    /// Sets a unique key of any bytes. It excludes duplicates as the key does, but cannot be used as an address.
    pub fn unique_key(self, key: impl Into<Vec<u8>>) -> Self {
        self.with(UniqueKey::new(key), |start, value| {
            start.unique_key = Some(value)
        })
    }

    /// Sets the statuses in which the unique key is taken.
    pub fn unique_scope(self, scope: Scope) -> Self {
        self.with(Ok(scope), |start, value| start.unique_scope = value)
    }

    /// Sets the queue; by default the machine's.
    pub fn queue(self, queue: impl AsRef<str>) -> Self {
        self.with(Name::new(queue), |start, value| start.queue = Some(value))
    }

    /// Sets the priority: lower numbers go first; 0 by default.
    pub fn priority(self, priority: i16) -> Self {
        self.with(Ok(Priority(priority)), |start, value| {
            start.priority = value
        })
    }

    /// Sets the partition: at most one instance of a partition executes at a time, in order.
    pub fn partition(self, key: impl AsRef<str>) -> Self {
        self.with(Key::new(key), |start, value| {
            start.partition_key = Some(value)
        })
    }

    /// Makes the instance due after a delay.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(Ok(When::After(delay)), |start, value| start.when = value)
    }

    /// Makes the instance due at a given time.
    pub fn at(self, moment: Timestamp) -> Self {
        self.with(Ok(When::At(moment)), |start, value| start.when = value)
    }

    /// Retries each step of the instance when it fails: at most `max_attempts` attempts, counting the first, with a
    /// delay that begins with `delay` and doubles. This replaces the policy of the machine or job. Every attempt
    /// belongs to the same instance and has the same [token](crate::Context::token).
    ///
    /// ```
    /// # use abide::client::new_start;
    /// # use abide::prelude::*;
    /// const MAIL: Job<String> = Job::new("mail");
    /// let mail = new_start(MAIL, "hello".to_owned()).retry(5, secs(1)).time_limit(secs(30));
    /// # let _ = mail;
    /// ```
    pub fn retry(self, max_attempts: u32, delay: Duration) -> Self {
        self.retry_by(RetrySpec::doubling(max_attempts, as_ms(delay)))
    }

    /// Retries each step of the instance when it fails, according to a policy; see [`retry`](Self::retry).
    pub fn retry_by(self, retry: RetrySpec) -> Self {
        self.with(Ok(retry), |start, value| {
            start.policy.get_or_insert_default().retry = Some(value);
        })
    }

    /// Limits the time of one attempt at a step, counted from its claim. Exceeding it is a failure of the step. This
    /// replaces the time limit of the machine or job. Time in the queue does not count.
    pub fn time_limit(self, limit: Duration) -> Self {
        self.with(Ok(as_ms(limit)), |start, value| {
            start.policy.get_or_insert_default().step_timeout_ms = Some(value);
        })
    }

    /// Sets the number of deaths of its worker in one step after which the instance fails (rule 5.7). This replaces the
    /// number that its machine, job or workflow declares.
    pub fn max_deaths(self, deaths: u32) -> Self {
        self.with(Ok(deaths), |start, value| {
            start.policy.get_or_insert_default().max_deaths = Some(value);
        })
    }

    /// Begins at this step instead of the first one.
    pub fn step(self, step: impl StepName) -> Self {
        self.with(step.step_name(), |start, value| start.step = Some(value))
    }

    /// Sets the version of the machine; by default that of the definition, or the newest one known of a machine that is
    /// started by its name.
    pub fn version(self, version: u32) -> Self {
        self.with(Ok(version), |start, value| start.version = Some(value))
    }

    /// If the key is taken, returns a handle on the instance that holds it instead of an error.
    pub fn or_existing(mut self) -> Self {
        self.or_existing = true;
        self
    }
}

impl<D: Startable> From<StartBuilder<D>> for Result<Start, Error> {
    fn from(spec: StartBuilder<D>) -> Self {
        spec.start
    }
}

impl<D: Startable> StartBuilder<D, Client> {
    /// Converts a store's answer to the caller's result.
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

    /// Starts the instance inside your own transaction. It exists once that commits; if that rolls back, it never
    /// existed. Workers are notified after the commit.
    ///
    /// With PostgreSQL: `abide.start(…).within(&transaction).await?`. With SQLite, where the result is immediate:
    /// `abide.start(…).within(&transaction)?`. If this returns an error other than a duplicate, roll back.
    ///
    /// ```
    /// # use abide::sqlite::rusqlite::{Connection, TransactionBehavior};
    /// # use abide::{Abide, Job};
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
            let started = started.ok_or_else(Error::unexpected_answer)?;
            Self::handle(&client, key, or_existing, started)
        })
    }
}

impl<D: Startable + 'static> IntoFuture for StartBuilder<D, Client> {
    type Output = Result<Handle<D::Output>, StartError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// Starts the instance, which is durable once this returns.
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
    /// Replaces a contract that this process has already stored with its id, so that it is not sent again. Returns the
    /// id of a contract that is sent.
    fn spare_contract(&self, start: &mut Start) -> Option<ContractId> {
        let Contracted::Given(contract) = &start.contract else {
            return None;
        };
        let id = contract.id();
        let stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        // A contract is sent again after a while, so that it is not deleted as unused (rule 16.2).
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
