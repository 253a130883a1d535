//! The future of an operation: it begins at its first poll, and is abandoned when it is dropped.

use std::sync::Arc;
use std::task::{Context, Poll};

use abide_core::model::{Ending, Json, OperationKind, Signature};

use super::OperationError;
use super::journal::{Brought, Journal, Request, WaitsFor};

/// An operation that the code awaits.
pub struct Operation {
    pub(super) journal: Arc<Journal>,
    request: Option<Request>,
    number: Option<u32>,
    /// Its number, also after it has ended.
    begun: u32,
}

/// The result of an operation.
pub enum Came {
    Value(Json),
    Error(String),
    TimedOut,
    Cancelled(String),
}

impl Operation {
    pub(super) fn new(journal: Arc<Journal>, signature: Signature, waits_for: WaitsFor) -> Self {
        let request = Request {
            signature,
            deadline: None,
            waits_for,
            starts: Vec::new(),
            graph_step: None,
        };
        Self {
            journal,
            request: Some(request),
            number: None,
            begun: 0,
        }
    }

    /// Changes the request, before the operation begins.
    pub(super) fn ask(&mut self, change: impl FnOnce(&mut Request)) {
        if let Some(request) = &mut self.request {
            change(request);
        }
    }

    /// Begins the operation at the first call. Returns its number, or `None` if the code cannot continue.
    pub(super) fn open(&mut self) -> Option<u32> {
        if let Some(request) = self.request.take() {
            self.number = self.journal.open(request);
            self.begun = self.number.unwrap_or_default();
        }
        self.number
    }

    pub(super) fn begun_as(&self) -> u32 {
        self.begun
    }

    /// Polls for the result that was delivered to it.
    pub(super) fn poll_brought(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        let Some(number) = self.open() else {
            return Poll::Pending;
        };
        let Some(brought) = self.journal.take(number, cx.waker()) else {
            return Poll::Pending;
        };
        self.number = None;
        Poll::Ready(match brought {
            Brought::Ending(Ending::Value(value), _) => Came::Value(value),
            Brought::Ending(Ending::Error(error), _) => Came::Error(error),
            Brought::Ending(Ending::TimedOut | Ending::Abandoned, _) => Came::TimedOut,
            Brought::Cancelled(reason) => Came::Cancelled(reason),
        })
    }

    /// Notes that the code uses the operation in an invalid way. The code never continues from here (rule 12.4).
    pub(super) fn misused(&self, problem: String, cure: &str) {
        self.journal.pages().misused(problem, cure);
    }

    /// Notes that this code cannot read a recorded value. The code never continues from here (rule 12.4).
    pub(super) fn unreadable<T>(&self, what: &str, error: &dyn std::fmt::Display) -> Poll<T> {
        let mut pages = self.journal.pages();
        let number = pages.count();
        pages.differs(
            number,
            &format!("{what} that does not match {}", std::any::type_name::<T>()),
            &format!("one that does ({error})"),
        );
        Poll::Pending
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.journal.abandon(number);
        }
    }
}

/// An open group of operations.
pub(super) struct Group {
    journal: Arc<Journal>,
    number: Option<u32>,
}

impl Group {
    pub fn open(journal: &Arc<Journal>, kind: OperationKind) -> Self {
        let mut operation =
            Operation::new(journal.clone(), Signature::of(kind), WaitsFor::Branches);
        let number = operation.open();
        operation.number = None;
        Self {
            journal: journal.clone(),
            number,
        }
    }

    pub fn close(mut self, value: Json) {
        if let Some(number) = self.number.take() {
            self.journal.close_group(number, value);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.journal.abandon(number);
        }
    }
}

/// An operation whose value must be parsed. The implementation decides what a timeout means. It is public only because
/// futures are made of it; it cannot be named outside of this crate.
pub trait Reads {
    /// The type that the code gets.
    type Output;

    fn operation(&mut self) -> &mut Operation;

    /// Parses the result.
    fn read(&mut self, came: Came) -> Poll<Result<Self::Output, OperationError>>;

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Self::Output, OperationError>> {
        match std::task::ready!(self.operation().poll_brought(cx)) {
            Came::Cancelled(reason) => Poll::Ready(Err(OperationError::Cancelled { reason })),
            came => self.read(came),
        }
    }
}

/// Implements `Future` for operations whose value is parsed.
macro_rules! awaitable {
    ($({$($generics:tt)*} $type:ty $(where {$($bounds:tt)*})?),* $(,)?) => {$(
        impl<$($generics)*> std::future::Future for $type $(where $($bounds)*)? {
            type Output = Result<<Self as super::operation::Reads>::Output, super::OperationError>;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Self::Output> {
                super::operation::Reads::poll_read(std::pin::Pin::into_inner(self), cx)
            }
        }
    )*};
}
pub(super) use awaitable;
