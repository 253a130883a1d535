//! Sagas: what was done is undone, in reverse, when what follows fails.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::rules::retry::Retry;
use futures_util::future::BoxFuture;

use super::Workflow;
use crate::BoxError;

type Undo = Box<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// What is to be undone when a saga fails: made by [`Workflow::saga`].
#[derive(Clone)]
pub struct Saga {
    undoes: Arc<Mutex<Vec<(String, Undo)>>>,
    retry: Arc<Mutex<Retry>>,
}

impl Saga {
    /// Notes how to undo what was just done. It runs as a step of this name when what follows fails: after those that
    /// were noted later, before those that were noted earlier.
    pub fn undo<F, R, E>(&self, name: impl Into<String>, undo: F)
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let undo = move || {
            let undoing = undo();
            Box::pin(async move { undoing.await.map_err(Into::into) }) as BoxFuture<'static, _>
        };
        let mut undoes = self.undoes.lock().unwrap_or_else(PoisonError::into_inner);
        undoes.push((name.into(), Box::new(undo)));
    }

    /// When an undoing that fails is tried again; never unless given.
    pub fn retry(&self, retry: Retry) {
        *self.retry.lock().unwrap_or_else(PoisonError::into_inner) = retry;
    }
}

/// A saga that failed and could not be undone as a whole: both are told.
#[derive(Debug)]
pub struct NotUndone {
    /// Why it failed.
    pub error: BoxError,
    /// What could not be undone, and why.
    pub left: Vec<(String, String)>,
}

impl fmt::Display for NotUndone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; and this was not undone:", self.error)?;
        for (name, error) in &self.left {
            write!(f, " {name} ({error})")?;
        }
        Ok(())
    }
}

impl std::error::Error for NotUndone {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The error itself is told already.
        self.error.source()
    }
}

impl Workflow {
    /// Runs code that notes how to undo what it has done. When it fails, or the workflow is cancelled meanwhile, all that
    /// was noted is undone, in reverse, durably, each as a step; then it comes to the error. When an undoing fails for
    /// good the others are undone all the same, and the error is [`NotUndone`].
    ///
    /// ```
    /// # use abide::{Workflow, BoxError};
    /// # async fn book(what: &'static str) -> Result<u32, BoxError> { Ok(what.len() as u32) }
    /// # async fn cancel(booking: u32) -> Result<(), BoxError> { let _ = booking; Ok(()) }
    /// async fn trip(wf: Workflow, _: ()) -> Result<u32, BoxError> {
    ///     wf.saga(|saga| {
    ///         let wf = wf.clone();
    ///         async move {
    ///             let flight = wf.step("book flight", || book("flight")).await?;
    ///             saga.undo("cancel flight", move || cancel(flight));
    ///             let hotel = wf.step("book hotel", || book("hotel")).await?;   // fails: the flight is cancelled
    ///             Ok(flight + hotel)
    ///         }
    ///     })
    ///     .await
    /// }
    /// ```
    pub async fn saga<T, F, R>(&self, code: F) -> Result<T, BoxError>
    where
        F: FnOnce(Saga) -> R,
        R: Future<Output = Result<T, BoxError>>,
    {
        let saga = Saga {
            undoes: Arc::default(),
            retry: Arc::new(Mutex::new(Retry::never())),
        };
        let error = match code(saga.clone()).await {
            Ok(value) => return Ok(value),
            // It goes on elsewhere, and nothing has failed.
            Err(error) if super::is_continuation(&error) && self.cancelled().is_none() => {
                return Err(error);
            }
            Err(error) => error,
        };
        let retry = saga
            .retry
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let mut undoes = {
            let mut undoes = saga.undoes.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *undoes)
        };
        let mut left = Vec::new();
        while let Some((name, undo)) = undoes.pop() {
            if let Err(error) = self.step(&name, &undo).retry(retry.clone()).await {
                left.push((name, error.to_string()));
            }
        }
        match left.is_empty() {
            true => Err(error),
            false => Err(Box::new(NotUndone { error, left })),
        }
    }
}
