//! A sample: an expense that must be approved, as a workflow. It sends reminders.

use abide::machine::Messages;
use abide::time::secs;
use abide::{BoxError, Flow, Signal, Workflow};

use super::work;

/// The name of the approver: `abide signal approval:3 approved finance`.
pub const APPROVED: Signal<String> = Signal::new("approved");

/// The workflow: from the amount to a sentence.
pub const APPROVAL: Flow<u32, String> =
    Flow::new("approval").messages(|| Messages::new().signal(APPROVED));

/// Number of reminders before the workflow gives up.
const REMINDERS: u32 = 10;

/// Its code.
pub async fn approval(wf: Workflow, amount: u32) -> Result<String, BoxError> {
    wf.step("ask", || simulate(300)).await?;
    for reminder in 0..=REMINDERS {
        if let Some(by) = wf.signal(APPROVED).timeout(secs(20)).await? {
            wf.step("pay out", || simulate(600)).await?;
            let after = match reminder {
                0 => "at once".to_owned(),
                1 => "after a reminder".to_owned(),
                many => format!("after {many} reminders"),
            };
            return Ok(format!("{by} approved {amount} {after}"));
        }
        wf.step("remind", || simulate(200)).await?;
    }
    Ok(format!("{amount} was not approved"))
}

async fn simulate(ms: u64) -> Result<(), BoxError> {
    work(ms).await;
    Ok(())
}
