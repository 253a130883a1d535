//! Replays the history of a run against code: to answer a query, and to check in a test if they match.

use std::path::Path;
use std::sync::Arc;

use abide_core::model::{
    Blocked, Entry, HistoryEvent, Instance, InstanceId, Json, Key, Limits, Name, OperationKind,
    Status,
};
use abide_kernel::SystemClock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::flow::{Flow, Program, Typed, WorkflowCode};
use super::journal::About;
use super::live::{Live, Stand};
use super::runner::begin;
use crate::machine::FaultKind;

/// A run with its history, as exported: everything that is needed to replay it anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHistory {
    /// The id of the run.
    pub id: InstanceId,
    /// Its key.
    #[serde(default)]
    pub key: Option<Key>,
    /// Its machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// Its status.
    pub status: Status,
    /// Its input.
    pub input: Json,
    /// Its result, if it is done.
    #[serde(default)]
    pub result: Option<Json>,
    /// The events of its history.
    pub history: Vec<Entry>,
}

impl RunHistory {
    /// Makes a run with its history.
    pub(crate) fn of(instance: Instance, history: Vec<Entry>) -> Self {
        Self {
            id: instance.row.id,
            key: instance.key,
            machine: instance.row.machine,
            version: instance.version,
            status: instance.row.status,
            input: instance.state,
            result: instance.result,
            history,
        }
    }

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

/// Returns the code, replayed to the end of the history.
pub(super) fn replayed(program: &dyn Program, run: &RunHistory) -> Result<Live, String> {
    let (live, stand) = replay(program, run).map_err(|blocked| blocked.to_string())?;
    match stand {
        Stand::Blocked(blocked) => Err(blocked.to_string()),
        Stand::Waits | Stand::Returned(_) => Ok(live),
    }
}

/// Checks if code can continue an open run. Returns what does not match.
pub(super) fn goes_on(program: &dyn Program, run: &RunHistory) -> Result<(), String> {
    let (_live, stand) = replay(program, run).map_err(|blocked| blocked.to_string())?;
    match stand {
        Stand::Blocked(blocked) => Err(blocked.to_string()),
        Stand::Returned(Err(fault)) if fault.kind() == FaultKind::Panic => {
            Err(format!("the code {fault}"))
        }
        // The code may have returned in a turn that is not committed yet, so its result is not compared.
        Stand::Waits | Stand::Returned(_) => Ok(()),
    }
}

fn replay(program: &dyn Program, run: &RunHistory) -> Result<(Live, Stand), Blocked> {
    let about = About {
        id: run.id,
        key: run.key.clone(),
        clock: Arc::new(SystemClock::default()),
        limits: Arc::new(Limits::default()),
        store: None,
    };
    let mut live = begin(program, about, &run.input, run.history.iter().cloned())?;
    let stand = live.replay();
    Ok((live, stand))
}

/// `true` if a turn of its code was committed. If the code waits or continues, it has begun an operation. If it
/// returned at once, the run has ended.
fn has_begun(run: &RunHistory) -> bool {
    let is_of_code = |entry: &Entry| {
        matches!(
            entry.what,
            HistoryEvent::OperationOpened(_) | HistoryEvent::OperationCompleted(_)
        )
    };
    run.status == Status::Done || run.status == Status::Failed || run.history.iter().any(is_of_code)
}

/// `true` if the code was notified of a cancellation, so that it returned by itself.
fn was_notified_of_cancellation(run: &RunHistory) -> bool {
    let is_notice = |entry: &Entry| matches!(&entry.what, HistoryEvent::OperationCompleted(one) if one.operation_kind == OperationKind::Cancel);
    run.history.iter().any(is_notice)
}

/// Replays a run against code, and returns what does not match: the kind, name and key of an operation, or, if the run
/// has ended, its result.
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
        // It never ran, or was ended from outside, so its code was not run further.
        _ if !has_begun(run) => Ok(()),
        Stand::Waits if run.status == Status::Cancelled && !was_notified_of_cancellation(run) => {
            Ok(())
        }
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
                "the run ended with {recorded}, and the code returns {result}"
            ))
        }
        Stand::Returned(Err(fault)) if run.status == Status::Done => {
            Err(format!("the run is done, and the code fails: {fault}"))
        }
        Stand::Returned(Ok(result)) if run.status == Status::Failed => {
            Err(format!("the run has failed, and the code returns {result}"))
        }
        Stand::Returned(_) => Ok(()),
    }
}
