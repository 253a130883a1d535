//! A machine whose steps a test writes down where it needs them.

use std::sync::Arc;

use abide::{Context, Machine, Outcome, Step};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::Gate;

/// Steps enough for any test.
#[derive(Step, Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    One,
    Two,
    Three,
}

type Code =
    dyn for<'a> Fn(At, &'a mut Context<Script>) -> BoxFuture<'a, Outcome<Script>> + Send + Sync;

/// A machine whose steps are a closure.
#[derive(Clone)]
pub struct Script(Arc<Code>);

impl Script {
    /// To be started; an engine that runs it stops it.
    pub fn any() -> Self {
        Self::new(|at, _| abide::stop(format!("nothing is written for step {at:?}")))
    }

    /// Steps that never wait.
    pub fn new(
        code: impl Fn(At, &mut Context<Self>) -> Outcome<Self> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |at, ctx| {
            Box::pin(std::future::ready(code(at, ctx)))
        }))
    }

    /// Steps that wait.
    pub fn waiting(
        code: impl for<'a> Fn(At, &'a mut Context<Self>) -> BoxFuture<'a, Outcome<Self>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Arc::new(code))
    }

    /// Steps that wait at that gate.
    pub fn gated(
        gate: &Gate,
        code: impl for<'a> Fn(At, &'a mut Context<Self>, Gate) -> BoxFuture<'a, Outcome<Self>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let gate = gate.clone();
        Self::waiting(move |at, ctx| code(at, ctx, gate.clone()))
    }
}

impl Machine for Script {
    const NAME: &'static str = "script";
    type Step = At;
    type State = Value;
    type Output = Value;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        (self.0)(at, ctx).await
    }
}
