//! The functions of [`Abide`] that act on instances: signals, updates, and the operations of an operator.

use abide_core::model::{CommandId, InstanceId, Key, Name, NewCommand, Refusal, Start, Started};
use abide_kernel::{Answer, CommandFilter, CommandPage, Op};

use crate::client::{self, first, receipt};
use crate::client::{
    Address, Cancelling, Client, Description, Diagnosis, Handle, OperateError, Receipt, Restarting,
    SendError, SignalBuilder, StartError, UpdateBuilder, UpdateHandle,
};
use crate::machine::Startable;
use crate::message::{SentSignal, SentUpdate};
use crate::{Abide, Error};

impl Abide {
    /// Sends a signal: `abide.signal("order:42", PAID, &payment).dedup("evt-7").await?`. Once that returns, the signal
    /// is durable and is never lost.
    ///
    /// A [`Signal`](crate::Signal) is sent with a value of its type. A name, without a Rust type, is sent with
    /// [`Arguments`](crate::message::Arguments): `abide.signal("order:42", "paid", arguments).await?`.
    pub fn signal<S: SentSignal>(
        &self,
        to: impl Address,
        signal: S,
        value: S::Value<'_>,
    ) -> SignalBuilder<Client> {
        SignalBuilder::new(to, signal, value, self.client().clone())
    }

    /// Sends any number of signals in one transaction. Each signal gets its own result.
    ///
    /// ```
    /// # use abide::client::{new_signal, new_start};
    /// # use abide::{Abide, Job, Signal};
    /// const PAID: Signal<u32> = Signal::new("paid");
    /// # const SHIP: Job<u32> = Job::new("ship");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// # abide.start_all((0..100).map(|n| new_start(SHIP, n).key(format!("order:{n}")))).await?;
    /// let sent = abide.signal_all((0..100).map(|n| new_signal(format!("order:{n}"), PAID, &5))).await?;
    /// assert!(sent.iter().all(Result::is_ok));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn signal_all<L: Into<Result<NewCommand, Error>>>(
        &self,
        signals: impl IntoIterator<Item = L>,
    ) -> Result<Vec<Result<Receipt, SendError>>, Error> {
        let signals = signals.into_iter().map(Into::into);
        let commands: Vec<NewCommand> = signals.collect::<Result<_, _>>()?;
        let targets: Vec<_> = commands.iter().map(|one| one.target.clone()).collect();
        let answers = self.client().deliver(commands).await?.into_iter();
        let each = answers.zip(targets);
        Ok(each
            .map(|(answer, target)| receipt(answer, target))
            .collect())
    }

    /// Sends a signal to the live instance that has the key of the start. If there is none, starts one with the signal
    /// in its inbox. Both happen in one commit. If the signal would be rejected, nothing starts. The start is what
    /// [`new_start`](crate::client::new_start) returns, or data: `Ok(start)`.
    pub fn signal_with_start<S: SentSignal>(
        &self,
        start: impl Into<Result<Start, Error>>,
        signal: S,
        value: S::Value<'_>,
    ) -> SignalBuilder<Client> {
        // A placeholder: the signal goes to the key of the start.
        let to = InstanceId::default();
        SignalBuilder::new(to, signal, value, self.client().clone()).with_start(start.into())
    }

    /// Sends an update and waits for its answer: `let name = abide.update("order:42", RENAME, &new).await?`.
    ///
    /// An [`Update`](crate::Update) is sent with a value of its type. A name, without a Rust type, is sent with
    /// [`Arguments`](crate::message::Arguments), and the answer is JSON.
    pub fn update<S: SentUpdate>(
        &self,
        to: impl Address,
        update: S,
        value: S::Value<'_>,
    ) -> UpdateBuilder<S::Answer> {
        UpdateBuilder::new(to, update, value, self.client().clone())
    }

    /// Returns a handle on an update that was sent before, to fetch its answer.
    pub fn update_handle<R>(&self, id: CommandId) -> UpdateHandle<R> {
        UpdateHandle::of(id, self.client().clone())
    }

    /// Returns the records of all signals and updates that were sent to an instance or to an earlier run of it,
    /// accepted or not, newest first. Pass `next` of one page as `before` of the following one.
    pub async fn commands(
        &self,
        target: impl Address,
        before: Option<CommandId>,
        limit: usize,
    ) -> Result<CommandPage, Error> {
        let target = target.target()?;
        let filter = match (self.client().store.get(&target).await?, target) {
            (Some(instance), _) => CommandFilter {
                chain: Some(instance.chain()),
                ..CommandFilter::default()
            },
            // No instance has the key: list the signals that are held for it.
            (None, crate::model::Target::Key(key)) => CommandFilter {
                key: Some(key),
                ..CommandFilter::default()
            },
            (None, crate::model::Target::Id(id)) => CommandFilter {
                instance: Some(id),
                ..CommandFilter::default()
            },
        };
        self.list_commands(&filter, before, limit).await
    }

    /// Returns the records of all signals and updates that match a filter, newest first.
    pub async fn list_commands(
        &self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Result<CommandPage, Error> {
        Ok(self.client().store.commands(filter, before, limit).await?)
    }

    /// Reserves a key: creates an instance that has the key and no run yet. A start with that key opens this instance,
    /// under the same id. Until then signals to it are rejected. [`start`](Self::start) says what can be reserved.
    pub async fn reserve<D: Startable>(
        &self,
        definition: D,
        key: impl AsRef<str>,
    ) -> Result<Handle<D::Output>, StartError> {
        let machine = definition.machine().map_err(Error::from)?;
        let key = Key::new(key).map_err(Error::from)?;
        match first(self.reserve_all([(machine, key.clone())]).await?).map_err(Error::from)?? {
            Started::New(id) => Ok(Handle::new(self.client().clone(), id, Some(key), true)),
            Started::Duplicate(holder) => Err(StartError::Duplicate { holder }),
        }
    }

    /// Reserves any number of keys in one transaction, each for the machine with that name. Each gets its own result; see
    /// [`reserve`](Self::reserve) and [`start_all`](Self::start_all).
    pub async fn reserve_all(
        &self,
        reservations: impl IntoIterator<Item = (Name, Key)>,
    ) -> Result<Vec<Result<Started, Refusal>>, Error> {
        let op = Op::Reserve(reservations.into_iter().collect());
        match self.client().run(op).await? {
            Answer::Started(each) => Ok(each),
            _ => Err(Error::unexpected_answer()),
        }
    }

    /// Cancels an instance and its children: `abide.cancel("order:42", "not wanted").await?`.
    pub fn cancel(&self, target: impl Address, reason: impl Into<String>) -> Cancelling {
        Cancelling::new(target, reason.into(), self.client().clone())
    }

    /// Opens a new run of an instance that failed or was cancelled, with its last state: `abide.restart("order:42").await?`.
    pub fn restart(&self, target: impl Address) -> Restarting {
        Restarting::new(target, self.client().clone())
    }

    /// Repairs what is wrong with an instance. Returns `true` if there was anything to repair.
    pub async fn repair(&self, target: impl Address) -> Result<bool, OperateError> {
        client::repair(self.client(), target).await
    }

    /// Checks every instance for violated invariants. In a database that only abide has written to, it finds none.
    pub async fn doctor(&self) -> Result<Diagnosis, Error> {
        client::doctor(self.client()).await
    }

    /// Returns an instance with what it waits for and whether anything can still wake it. The id of a run without a key
    /// finds the newest run of its chain.
    pub async fn describe(&self, target: impl Address) -> Result<Option<Description>, Error> {
        client::describe(self.client(), target).await
    }
}
