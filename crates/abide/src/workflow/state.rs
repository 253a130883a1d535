//! A workflow's own state, and what is asked of it from outside: updates and queries.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_core::model::{Json, Name};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Workflow;
use crate::BoxError;
use crate::message::{Query, Update, read};

/// A value that a workflow's code shares with its update and query handlers. It is not stored: it is what the code and
/// the updates have made of it, and becomes the same again when they are replayed.
pub struct State<T>(Arc<Mutex<T>>);

impl<T> State<T> {
    /// Reads it.
    pub fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.lock())
    }

    /// Changes it.
    pub fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.lock())
    }

    /// Puts another value in its place.
    pub fn set(&self, value: T) {
        *self.lock() = value;
    }

    /// The value.
    pub fn get(&self) -> T
    where
        T: Clone,
    {
        self.lock().clone()
    }

    /// What a panic left half changed is put back by whoever caught it.
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
    /// A value that the code shares with its update and query handlers, and that conditions are about.
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

    /// Answers an update, from now on: the handler changes the workflow's [state](Self::state) and says what the caller
    /// is told. When it fails the caller is told the error, and the state is as it was. One that comes while there is no
    /// handler is answered with an error that says so: give it before the first `await`. The update must be among the
    /// [messages](crate::Flow::messages) that the workflow declares.
    pub fn on_update<A, R, F>(&self, update: Update<A, R>, mut handler: F)
    where
        A: DeserializeOwned + JsonSchema + 'static,
        R: Serialize,
        F: FnMut(A) -> Result<R, BoxError> + Send + 'static,
    {
        let name = self.name(Name::new(update.name()));
        let answer = move |arguments: &Json| {
            let value = read(arguments).map_err(|error| error.to_string())?;
            written(handler(value))
        };
        self.journal.pages().updates.insert(name, Box::new(answer));
    }

    /// Answers a query, from now on: the handler reads the workflow's state, and must not change it.
    ///
    /// ```
    /// # use abide::{Query, Workflow, BoxError};
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
        A: DeserializeOwned + JsonSchema + 'static,
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
