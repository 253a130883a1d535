//! Sagas: if a later part fails, earlier parts are undone in reverse order.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use abide_core::rules::retry::Retry;
use futures_util::future::BoxFuture;

use super::Workflow;
use crate::BoxError;

type Undo = Box<dyn Fn() -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The undo steps of a saga: created by [`Workflow::saga`].
#[derive(Clone)]
pub struct Saga {
    undoes: Arc<Mutex<Vec<(String, Undo)>>>,
    retry: Arc<Mutex<Retry>>,
}

impl Saga {
    /// Registers how to undo an action. If something later fails, this runs as a step with this name. Undo steps run in
    /// reverse order of registration.
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

    /// Sets the retry policy of undo steps. Default: no retries.
    pub fn retry(&self, retry: Retry) {
        *self.retry.lock().unwrap_or_else(PoisonError::into_inner) = retry;
    }
}

/// The error of a saga that failed and could not be undone completely.
#[non_exhaustive]
pub struct NotUndone {
    /// The error of the saga.
    pub error: BoxError,
    /// The undo steps that failed, with their errors.
    pub left: Vec<(String, String)>,
}

abide_core::debug_is_display!(NotUndone);

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
        // The message already contains the error itself.
        self.error.source()
    }
}

impl Workflow {
    /// Runs code that registers how to undo its actions. If the code fails, or the workflow is cancelled meanwhile, all
    /// registered undo steps run, in reverse order and durably, each as a step. Then the error is returned. If an undo
    /// step fails for good, the others still run, and the error is [`NotUndone`].
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
            // The workflow continues in a new run, and nothing has failed.
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
