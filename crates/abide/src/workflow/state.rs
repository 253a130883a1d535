//! A workflow's own state, and its handlers of updates and queries.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_core::model::{Json, Name};
use serde::Serialize;

use super::Workflow;
use super::journal::{Answers, Handling};
use crate::BoxError;
use crate::message::{Message, Query, Update, read};

/// A value that a workflow's code shares with its update and query handlers. It is not stored. The code and the updates
/// compute it, and replay computes the same value again.
pub struct State<T>(Arc<Mutex<T>>);

impl<T> State<T> {
    /// Reads the value.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock())
    }

    /// Changes the value.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock())
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        *self.lock() = value;
    }

    /// Returns a copy of the value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.lock().clone()
    }

    /// Locks the value. If a panic left it half changed, the code that caught the panic restores it.
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for State<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(f)
    }
}

impl Workflow {
    /// Creates a value that the code shares with its update and query handlers, and that conditions can use.
    pub fn state<T: Clone + Send + 'static>(&self, value: T) -> State<T> {
        let state = State(Arc::new(Mutex::new(value)));
        let kept = state.clone();
        let save = move || {
            let (kept, value) = (kept.clone(), kept.get());
            Box::new(move || kept.set(value)) as super::journal::Restore
        };
        self.journal.pages().saves.push(Box::new(save));
        state
    }

    /// Answers an update from now on: the handler changes the workflow's [state](Self::state) and returns the answer.
    /// If it fails, the caller gets the error, and the state is as before. Updates that arrived before there was a
    /// handler have waited, and are answered now. The update must be among the [messages](crate::Flow::messages) that
    /// the workflow declares.
    ///
    /// For a handler that uses durable operations, see [`on_update_async`](Self::on_update_async).
    pub fn on_update<A, R, F>(&self, update: Update<A, R>, mut handler: F)
    where
        A: Message,
        R: Serialize,
        F: FnMut(A) -> Result<R, BoxError> + Send + 'static,
    {
        let name = self.name(Name::new(update.name()));
        let answer = move |arguments: &Json| {
            let value = read(arguments).map_err(|error| error.to_string())?;
            written(handler(value))
        };
        self.handle(name, Answers::AtOnce(Box::new(answer)));
    }

    /// Handles an update from now on in `async` code, which may use everything that the workflow's own code may: steps,
    /// signals, sleeps, children. Each update runs beside the workflow's code and beside other updates. They begin in
    /// the order of their commands. The return value of the handler is the answer, committed with the turn in which it
    /// returns; until then the update is `accepted`.
    ///
    /// If the handler fails or panics, only the update fails, with that error. What it changed before stays changed. A
    /// cancellation reaches it as an error of the operation that it awaits. If the workflow's own code returns first,
    /// running handlers are dropped and their updates fail. Where that matters, wait until
    /// [`updates_in_progress`](Self::updates_in_progress) is 0.
    ///
    /// ```
    /// # use abide::machine::Messages;
    /// # use abide::prelude::*;
    /// # async fn reserve(item: &str) -> Result<u32, BoxError> { Ok(item.len() as u32) }
    /// const ADD: Update<String, u32> = Update::new("add");
    /// const SHIP: Signal<()> = Signal::new("ship");
    ///
    /// async fn order(wf: Workflow, _: ()) -> Result<u32, BoxError> {
    ///     let total = wf.state(0);
    ///     let added = total.clone();
    ///     wf.on_update_async(ADD, move |wf, item: String| {
    ///         let added = added.clone();
    ///         async move {
    ///             let price = wf.step("reserve", || reserve(&item)).await?;
    ///             Ok(added.update(|total| { *total += price; *total }))
    ///         }
    ///     });
    ///     wf.signal(SHIP).await?;
    ///     wf.condition("all.added", || wf.updates_in_progress() == 0).await?;
    ///     Ok(total.get())
    /// }
    /// ```
    pub fn on_update_async<A, R, F, Fut>(&self, update: Update<A, R>, handler: F)
    where
        A: Message,
        R: Serialize,
        F: Fn(Self, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, BoxError>> + Send + 'static,
    {
        let name = self.name(Name::new(update.name()));
        let handler = Arc::new(handler);
        let begin = move |wf: Self, arguments: Json| {
            let handler = handler.clone();
            let handling = async move {
                // Called at the first poll, as the workflow's own code is.
                let handling = {
                    let value = read(&arguments).map_err(|error| error.to_string())?;
                    handler(wf, value)
                };
                written(handling.await)
            };
            Box::pin(handling) as Handling
        };
        self.handle(name, Answers::InTime(Arc::new(begin)));
    }

    /// The number of updates that the handlers of [`on_update_async`](Self::on_update_async) are working on.
    pub fn updates_in_progress(&self) -> usize {
        self.journal.pages().handled.len()
    }

    fn handle(&self, name: Name, answers: Answers) {
        let before = self.journal.pages().updates.insert(name, answers);
        // Outside the lock, because dropping it runs user code.
        drop(before);
    }

    /// Answers a query from now on: the handler reads the workflow's state, and must not change it.
    ///
    /// ```
    /// # use abide::prelude::*;
    /// const PROGRESS: Query<(), u32> = Query::new("progress");
    ///
    /// async fn import(wf: Workflow, _: ()) -> Result<(), BoxError> {
    ///     let done = wf.state(0);
    ///     wf.on_query(PROGRESS, { let done = done.clone(); move |()| Ok(done.get()) });
    ///     // …
    /// #   let _ = done;
    ///     Ok(())
    /// }
    /// ```
    pub fn on_query<A, R, F>(&self, query: Query<A, R>, mut handler: F)
    where
        A: Message,
        R: Serialize,
        F: FnMut(A) -> Result<R, BoxError> + Send + 'static,
    {
        let name = self.name(Name::new(query.name()));
        let answer = move |arguments: &Json| {
            let value = read(arguments).map_err(|error| error.to_string())?;
            written(handler(value))
        };
        self.journal.pages().queries.insert(name, Box::new(answer));
    }
}

fn written<R: Serialize>(answer: Result<R, BoxError>) -> Result<Json, String> {
    let answer = answer.map_err(|error| crate::machine::Fault::error(error).to_string())?;
    Json::of(&answer).map_err(|error| format!("the answer cannot be stored: {error}"))
}
