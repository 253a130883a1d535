//! Replays the history of a run against code: to answer a query, and to see in a test whether they fit.

use std::path::Path;
use std::sync::Arc;

use abide_core::model::{
    Blocked, Entry, Happening, InstanceId, Json, Key, Limits, Name, OperationKind, Status,
};
use abide_kernel::SystemClock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::flow::{Flow, Program, Typed, WorkflowCode};
use super::journal::About;
use super::live::{Live, Stand};
use super::runner::begin;

/// A run with its history, as it is exported: all that is needed to replay it, anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHistory {
    /// The run.
    pub id: InstanceId,
    /// Its key.
    #[serde(default)]
    pub key: Option<Key>,
    /// Its machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// Where it stands.
    pub status: Status,
    /// What it began with.
    pub input: Json,
    /// What it came to, when it is done.
    #[serde(default)]
    pub result: Option<Json>,
    /// What happened to it.
    pub history: Vec<Entry>,
}

impl RunHistory {
    /// Writes it to a file, as JSON.
    pub fn to_file(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        let file = std::io::BufWriter::new(std::fs::File::create(path)?);
        Ok(serde_json::to_writer_pretty(file, self)?)
    }

    /// Reads it from a file.
    pub fn from_file(path: impl AsRef<Path>) -> std::io::Result<Self> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }
}

/// The code, brought to where the history ends.
pub(super) fn replayed(program: &dyn Program, run: &RunHistory) -> Result<Live, String> {
    let (live, stand) = replay(program, run).map_err(|blocked| blocked.to_string())?;
    match stand {
        Stand::Blocked(blocked) => Err(blocked.to_string()),
        Stand::Waits | Stand::Returned(_) => Ok(live),
    }
}

fn replay(program: &dyn Program, run: &RunHistory) -> Result<(Live, Stand), Blocked> {
    let about = About {
        id: run.id,
        key: run.key.clone(),
        clock: Arc::new(SystemClock::default()),
        limits: Arc::new(Limits::default()),
    };
    let mut live = begin(program, about, &run.input, run.history.iter().cloned())?;
    let stand = live.replay();
    Ok((live, stand))
}

/// Whether a turn of its code was committed. One that waits or goes on has begun an operation; one that returned at once
/// has ended.
fn has_begun(run: &RunHistory) -> bool {
    let is_of_code = |entry: &Entry| {
        matches!(
            entry.what,
            Happening::OperationOpened(_) | Happening::OperationCompleted(_)
        )
    };
    run.status == Status::Done || run.status == Status::Failed || run.history.iter().any(is_of_code)
}

/// Whether the code was told of a cancellation, so that it returned by itself.
fn was_told_to_cancel(run: &RunHistory) -> bool {
    let tells = |entry: &Entry| matches!(&entry.what, Happening::OperationCompleted(one) if one.operation_kind == OperationKind::Cancel);
    run.history.iter().any(tells)
}

/// Replays a run against code, and says what does not fit: the operations, in kind, name and key, and, when the run has
/// ended, what it came to.
pub(crate) fn check<I, O>(
    flow: Flow<I, O>,
    code: impl WorkflowCode<I, O>,
    run: &RunHistory,
) -> Result<(), String>
where
    I: DeserializeOwned + 'static,
    O: Serialize + 'static,
{
    if flow.name() != run.machine.as_str() {
        return Err(format!(
            "the history is that of {:?}, and the code that of {:?}",
            run.machine.as_str(),
            flow.name()
        ));
    }
    let program = Typed::<I, O, _>::new(code);
    let (_live, stand) = replay(&program, run).map_err(|blocked| blocked.to_string())?;
    match stand {
        Stand::Blocked(blocked) => Err(blocked.to_string()),
        // It never ran, or was ended from outside: nothing more was asked of its code.
        _ if !has_begun(run) => Ok(()),
        Stand::Waits if run.status == Status::Cancelled && !was_told_to_cancel(run) => Ok(()),
        Stand::Waits if run.status.is_terminal() => Err(format!(
            "the run is {}, and at the end of its history the code waits for more",
            run.status
        )),
        Stand::Waits => Ok(()),
        Stand::Returned(_) if !run.status.is_terminal() => Err(format!(
            "the run is {}, and at the end of its history the code has returned",
            run.status
        )),
        Stand::Returned(Ok(result)) if run.status == Status::Done => {
            let parsed = |json: &Json| json.to::<serde_json::Value>().unwrap_or_default();
            let recorded = run.result.clone().unwrap_or_default();
            if parsed(&recorded) == parsed(&result) {
                return Ok(());
            }
            Err(format!(
                "the run came to {recorded}, and the code comes to {result}"
            ))
        }
        Stand::Returned(Err(fault)) if run.status == Status::Done => {
            Err(format!("the run is done, and the code fails: {fault}"))
        }
        Stand::Returned(Ok(result)) if run.status == Status::Failed => Err(format!(
            "the run has failed, and the code comes to {result}"
        )),
        Stand::Returned(_) => Ok(()),
    }
}
