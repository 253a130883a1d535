//! Runs user code so that its panics and delays do not harm the engine.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use abide_core::model::Timestamp;
use abide_kernel::Clock;
use futures_util::FutureExt;
use futures_util::future::{Either, select};

use super::{Fault, FaultKind};
use crate::BoxError;

/// Runs user code. Catches its panics, and stops it when its time limit is exceeded (rules 5.2, 5.4).
pub(crate) async fn guarded<T>(
    code: impl Future<Output = Result<T, BoxError>>,
    limit: Option<Duration>,
    clock: &dyn Clock,
) -> Result<T, Fault> {
    let code = AssertUnwindSafe(code).catch_unwind();
    let answer = match limit {
        None => code.await,
        Some(limit) => {
            let up = passed(clock, clock.now() + limit);
            match select(Box::pin(code), Box::pin(up)).await {
                Either::Left((answer, _)) => answer,
                Either::Right(_) => {
                    let text = format!("ran longer than its time limit of {limit:?}");
                    return Err(Fault::new(FaultKind::TimeLimit, text));
                }
            }
        }
    };
    answer
        .map_err(|payload| Fault::panic(&*payload))?
        .map_err(Fault::error)
}

/// Runs the code around a step, which calls more user code: it reads and writes states and requests a time limit. A
/// panic in there counts as a panic of the step (rule 5.2).
pub(super) async fn caught<T>(code: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let answer = AssertUnwindSafe(code).catch_unwind().await;
    answer.unwrap_or_else(|payload| Err(Fault::panic(&*payload)))
}

/// Waits until a time has passed. A clock may wake its sleepers early.
async fn passed(clock: &dyn Clock, until: Timestamp) {
    while clock.now() < until {
        clock.sleep_until(until).await;
    }
}
