//! What an [`Abide`] says to instances: signals, updates, and what an operator asks for.

use abide_core::model::{Arguments, CommandId, Delivery, InstanceId, Key, Name, Refusal, Started};
use abide_kernel::{Answer, CommandFilter, CommandPage, Op};
use schemars::JsonSchema;
use serde::Serialize;

use crate::client::{self, receipt};
use crate::message::{Signal, Update};
use crate::{
    Abide, Address, Asked, Cancelling, Client, Definition, Diagnosis, Error, Handle, Letter, Look,
    OperateError, Receipt, Request, Restarting, SendError, Spec, StartError,
};

impl Abide {
    /// Sends a signal: `abide.signal("order:42", PAID, &payment).dedup("evt-7").await?`. Durable when it answers, and
    /// never lost from then on.
    pub fn signal<T>(&self, to: impl Address, signal: Signal<T>, value: &T) -> Letter<Client>
    where
        T: Serialize + JsonSchema + 'static,
    {
        Letter::new(to, signal, value, self.client().clone())
    }

    /// Sends a signal by its name, whoever knows its type.
    pub fn signal_named(
        &self,
        to: impl Address,
        name: &str,
        arguments: Arguments,
    ) -> Letter<Client> {
        Letter::named(to, name, Ok(arguments), self.client().clone())
    }

    /// Sends any number of signals in one transaction, each answered for itself.
    ///
    /// ```
    /// # use abide::{Abide, Job, Signal, letter, spec};
    /// const PAID: Signal<u32> = Signal::new("paid");
    /// # const SHIP: Job<u32> = Job::new("ship");
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let abide = Abide::open("memory:").await?;
    /// # abide.start_all((0..100).map(|n| spec(SHIP, n).key(format!("order:{n}")))).await?;
    /// let sent = abide.signal_all((0..100).map(|n| letter(format!("order:{n}"), PAID, &5))).await?;
    /// assert!(sent.iter().all(Result::is_ok));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn signal_all<L: Into<Result<Delivery, Error>>>(
        &self,
        letters: impl IntoIterator<Item = L>,
    ) -> Result<Vec<Result<Receipt, SendError>>, Error> {
        let letters = letters.into_iter().map(Into::into);
        let deliveries: Vec<Delivery> = letters.collect::<Result<_, _>>()?;
        let answers = self.client().deliver(deliveries).await?;
        Ok(answers.into_iter().map(receipt).collect())
    }

    /// Sends a signal to whoever lives under the key of `spec`, or starts that with the signal in its inbox, in one
    /// commit. When the signal would be refused, nothing starts.
    pub fn signal_with_start<D: Definition, T>(
        &self,
        spec: Spec<D>,
        signal: Signal<T>,
        value: &T,
    ) -> Letter<Client>
    where
        T: Serialize + JsonSchema + 'static,
    {
        // The key of the start is what it is sent to.
        let to = InstanceId::default();
        Letter::new(to, signal, value, self.client().clone()).with_start(spec.into())
    }

    /// Sends an update and waits for its answer: `let name = abide.update("order:42", RENAME, &new).await?`.
    pub fn update<A, R>(&self, to: impl Address, update: Update<A, R>, value: &A) -> Request<R>
    where
        A: Serialize + JsonSchema + 'static,
    {
        Request::new(to, update, value, self.client().clone())
    }

    /// An update that was sent before, to ask for its answer.
    pub fn asked<R>(&self, id: CommandId) -> Asked<R> {
        Asked::of(id, self.client().clone())
    }

    /// The record of every signal and update that was sent to an instance or an earlier run of it, accepted or not,
    /// newest first: `next` of one page is `before` of the following.
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
            // Nobody is there: what is held for the key.
            (None, crate::Target::Key(key)) => CommandFilter {
                key: Some(key),
                ..CommandFilter::default()
            },
            (None, crate::Target::Id(id)) => CommandFilter {
                instance: Some(id),
                ..CommandFilter::default()
            },
        };
        self.list_commands(&filter, before, limit).await
    }

    /// The records of all signals and updates that meet a filter, newest first.
    pub async fn list_commands(
        &self,
        filter: &CommandFilter,
        before: Option<CommandId>,
        limit: usize,
    ) -> Result<CommandPage, Error> {
        Ok(self.client().store.commands(filter, before, limit).await?)
    }

    /// Makes an instance that has a key and no run yet. A start under that key opens it, with the same id; signals to it
    /// are refused until then.
    pub async fn reserve<D: Definition>(
        &self,
        definition: D,
        key: impl AsRef<str>,
    ) -> Result<Handle<D::Output>, StartError> {
        let machine: Name = definition.declared().map_err(Error::from)?.machine;
        let key = Key::new(key).map_err(Error::from)?;
        let op = Op::Reserve(vec![(machine, key.clone())]);
        let started: Option<Result<Started, Refusal>> = match self.client().run(op).await? {
            Answer::Started(each) => each.into_iter().next(),
            _ => None,
        };
        match started.ok_or(Error::Closed)?? {
            Started::New(id) => Ok(Handle::new(self.client().clone(), id, Some(key), true)),
            Started::Duplicate(holder) => Err(StartError::Duplicate { holder }),
        }
    }

    /// Cancels an instance, and its children with it: `abide.cancel("order:42", "not wanted").await?`.
    pub fn cancel(&self, target: impl Address, reason: impl Into<String>) -> Cancelling {
        Cancelling::new(target, reason.into(), self.client().clone())
    }

    /// Opens a new run of an instance that failed or was cancelled, with its last state: `abide.restart("order:42").await?`.
    pub fn restart(&self, target: impl Address) -> Restarting {
        Restarting::new(target, self.client().clone())
    }

    /// Puts right what is wrong with an instance; whether anything was.
    pub async fn repair(&self, target: impl Address) -> Result<bool, OperateError> {
        client::repair(self.client(), target).await
    }

    /// Looks at every instance for what must not be. In a database that only abide has written to, it finds nothing.
    pub async fn doctor(&self) -> Result<Diagnosis, Error> {
        client::doctor(self.client()).await
    }

    /// An instance with what it waits for, and whether anything can still wake it. The id of a run without a key finds the
    /// newest run of its chain.
    pub async fn look(&self, target: impl Address) -> Result<Option<Look>, Error> {
        client::look(self.client(), target).await
    }
}
