//! The workflows that are measured.

use std::sync::Arc;

use abide::workflow::WorkflowCode;
use abide::{BoxError, Flow, Workflow};

use crate::machines::{GO, Order, Ten};

/// Ten steps, as [`Ten`] has them.
pub const TEN: Flow<Order, u64> = Flow::new("bench-ten-flow");

pub async fn ten(wf: Workflow, mut order: Order) -> Result<u64, BoxError> {
    while order.steps < Ten::STEPS {
        let steps = order.steps + 1;
        order.steps = wf
            .step("work", || async move { Ok::<_, BoxError>(steps) })
            .await?;
    }
    Ok(order.order)
}

/// As many steps as its input says, and then one whenever it is signalled.
pub const LONG: Flow<u32> = Flow::new("bench-long-flow");

/// Its code, which tells when it runs a step after a signal.
pub fn long(tell: impl Fn() + Send + Sync + 'static) -> impl WorkflowCode<u32, ()> {
    let tell = Arc::new(tell);
    move |wf: Workflow, steps: u32| {
        let tell = tell.clone();
        async move {
            for step in 0..steps {
                wf.step("work", || async move { Ok::<_, BoxError>(step) })
                    .await?;
            }
            loop {
                wf.signal(GO).await?;
                wf.step("tell", || async {
                    tell();
                    Ok::<_, BoxError>(())
                })
                .await?;
            }
        }
    }
}
