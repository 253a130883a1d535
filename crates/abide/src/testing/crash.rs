//! Where a worker is made to die.

use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::{Crash, CrashPoint};

/// The places at which the worker is to die, each of them once.
#[derive(Clone, Default)]
pub(super) struct Crashes {
    places: Arc<Mutex<Vec<(&'static str, Crash)>>>,
    always: Arc<Mutex<Option<Crash>>>,
}

impl Crashes {
    /// Lets the worker die at that moment of the next step of that name.
    pub fn arm(&self, step: &'static str, moment: Crash) {
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((step, moment));
    }

    /// Lets the worker die at that moment of every step, whenever it is started again; or not any more.
    pub fn always(&self, moment: Option<Crash>) {
        *self.always.lock().unwrap_or_else(PoisonError::into_inner) = moment;
    }

    /// What the engine asks.
    pub fn point(&self) -> CrashPoint {
        let (places, always) = (self.places.clone(), self.always.clone());
        Arc::new(move |task, moment| {
            if *always.lock().unwrap_or_else(PoisonError::into_inner) == Some(moment) {
                return true;
            }
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            let found = places
                .iter()
                .position(|(step, when)| *step == task.step.as_str() && *when == moment);
            found.map(|at| places.swap_remove(at)).is_some()
        })
    }
}
