//! Checks code against the open instances, before it claims any of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use abide_core::model::{AT_ONCE, Instance, InstanceId, Key, Kind, Lane, Name, Status};
use abide_kernel::{Filter, Store};

use super::Runner;
use crate::Error;
use crate::workflow::RunHistory;

/// The number of open instances of a lane that are checked, newest first.
const NEWEST: usize = 100;

/// The result of [`EngineBuilder::check`](crate::engine::EngineBuilder::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// The number of open instances that were checked.
    pub checked: usize,
    /// The instances that this code could not run.
    pub unfit: Vec<Unfit>,
}

impl Check {
    /// `true` if this code can run all instances that were checked.
    pub const fn fits(&self) -> bool {
        self.unfit.is_empty()
    }
}

/// An open instance that the code could not run: it would be blocked (rule 12.4).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfit {
    /// The id of the instance.
    pub id: InstanceId,
    /// Its key.
    pub key: Option<Key>,
    /// Its machine.
    pub machine: Name,
    /// Its version.
    pub version: u32,
    /// The step that runs next. A workflow has only one.
    pub step: Name,
    /// The incompatibility.
    pub problem: String,
}

/// Checks the newest open instances of a runner's lane.
pub(super) async fn check(
    store: &dyn Store,
    runner: &dyn Runner,
    found: &mut Check,
) -> Result<(), Error> {
    let (declared, _) = runner.declared()?;
    let lane = Lane {
        machine: declared.machine,
        version: declared.version,
    };
    for instance in open(store, &lane).await? {
        let history = match instance.kind {
            Kind::Workflow => crate::history::read(store, instance.id).await?,
            Kind::Machine => Vec::new(),
        };
        found.checked += 1;
        let (id, key, step) = (instance.id, instance.key.clone(), instance.step.clone());
        if let Err(problem) = runner.fits(&RunHistory::of(instance, history), &step) {
            found.unfit.push(Unfit {
                id,
                key,
                machine: lane.machine.clone(),
                version: lane.version,
                step,
                problem,
            });
        }
    }
    Ok(())
}

/// Returns the newest open instances of a lane, newest first. Ended instances are never read: a busy machine has many
/// of them that are newer than the waiting ones.
async fn open(store: &dyn Store, lane: &Lane) -> Result<Vec<Instance>, Error> {
    // An instance whose status changes between two of these reads may be found twice. It may also be missed, but then
    // it is running now.
    let mut newest = BTreeMap::new();
    for status in Status::ALL.into_iter().filter(|one| is_open(*one)) {
        let found = newest_in(store, lane, status).await?;
        newest.extend(found.into_iter().map(|one| (Reverse(one.id), one)));
    }
    Ok(newest.into_values().take(NEWEST).collect())
}

/// `true` if an instance with this status has started and not ended.
const fn is_open(status: Status) -> bool {
    !status.is_terminal() && !matches!(status, Status::Reserved)
}

/// Returns the newest instances of a lane in a status. Pages also contain other versions, which are skipped.
async fn newest_in(store: &dyn Store, lane: &Lane, status: Status) -> Result<Vec<Instance>, Error> {
    let filter = Filter {
        status: Some(status),
        machine: Some(lane.machine.clone()),
        ..Filter::default()
    };
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = store.list(&filter, before, AT_ONCE).await?;
        let of_lane = page.items.into_iter();
        found.extend(of_lane.filter(|one| one.version == lane.version));
        match page.next {
            Some(next) if found.len() < NEWEST => before = Some(next),
            _ => break,
        }
    }
    found.truncate(NEWEST);
    Ok(found)
}
