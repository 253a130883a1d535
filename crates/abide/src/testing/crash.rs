//! The points at which the test kit kills the worker.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{Crash, CrashPoint};

/// The points at which the worker is to die, each of them once.
#[derive(Clone, Default)]
pub(super) struct Crashes {
    points: Arc<Mutex<Vec<(&'static str, Crash)>>>,
    always: Arc<Mutex<Option<Crash>>>,
}

impl Crashes {
    /// Kills the worker at that moment of the next step with that name.
    pub fn arm(&self, step: &'static str, moment: Crash) {
        self.points
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((step, moment));
    }

    /// Kills the worker at that moment of every step, also after it is started again; `None` ends that.
    pub fn always(&self, moment: Option<Crash>) {
        *self.always.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }

    /// Returns the function that the engine calls to ask whether to die.
    pub fn point(&self) -> CrashPoint {
        let (points, always) = (self.points.clone(), self.always.clone());
        Arc::new(move |task, moment| {
            if *always.lock().unwrap_or_else(PoisonError::into_inner) == Some(moment) {
                return true;
            }
            let mut points = points.lock().unwrap_or_else(PoisonError::into_inner);
            let found = points
                .iter()
                .position(|(step, when)| *step == task.step.as_str() && *when == moment);
            found.map(|at| points.swap_remove(at)).is_some()
        })
    }
}
