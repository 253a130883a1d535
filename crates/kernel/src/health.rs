//! Reads instances with their health: loads the data that [`health`] needs, for one instance or a page.

use std::collections::{BTreeSet, HashMap};
use std::slice;

use abide_core::model::{Instance, InstanceId, Target};
use abide_core::rules::liveness::{
    Health, World, health, is_judged_by_contract, is_judged_by_workers,
};

use crate::IDS_MOST;
use crate::{Filter, Page, Result, Stamp, Store, Surroundings, newest_run, terms};

/// The maximum number of reads of an instance that is written to while it is being examined.
const TRIES: usize = 3;

/// The maximum number of pending commands and children around a page of instances. A page that would have more ends
/// earlier, but has at least one instance.
const AROUND_MOST: u64 = 100_000;

/// Returns an instance and its health (rule 13.1). For an instance without a key, returns the newest run of its chain
/// (rule 2.5).
pub async fn describe(store: &dyn Store, target: &Target) -> Result<Option<(Instance, Health)>> {
    let mut tries = 0;
    loop {
        let Some(instance) = newest_run(store, target).await? else {
            return Ok(None);
        };
        tries += 1;
        let judged = judge(store, slice::from_ref(&instance)).await?;
        if let Some((health, has_moved)) = judged.into_iter().next()
            && (!has_moved || tries >= TRIES)
        {
            return Ok(Some((instance, health)));
        }
    }
}

/// Returns a page of instances, newest first, below `before`, with their health (rule 13.1).
///
/// It takes four statements, however long the page is: the instances, the surroundings of a thousand of them, the
/// workers, and the contracts that this process has not cached.
pub async fn describe_page(
    store: &dyn Store,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
) -> Result<Page<(Instance, Health)>> {
    let page = bounded(store.list(filter, before, limit).await?);
    let healths = judge(store, &page.items).await?.into_iter();
    let items = page.items.into_iter().zip(healths);
    Ok(Page {
        items: items.map(|(one, (health, _))| (one, health)).collect(),
        next: page.next,
    })
}

/// Truncates the page so that the surroundings stay within the limit (rule 16.4).
fn bounded(mut page: Page<Instance>) -> Page<Instance> {
    let mut around = 0_u64;
    let fits = page.items.iter().take_while(|one| {
        let counts = [one.inbox.signals, one.inbox.updates, one.family.pending];
        around += match one.status.is_terminal() {
            true => 0,
            false => counts.map(u64::from).iter().sum::<u64>(),
        };
        around <= AROUND_MOST
    });
    let fitting = fits.count().max(1);
    if fitting < page.items.len() {
        page.items.truncate(fitting);
        page.next = page.items.last().map(|last| last.id);
    }
    page
}

/// Returns the health of instances, in order, and `true` for those that were written to between the two reads. The
/// surroundings of those belong to another moment, so they are judged by their own rows only.
async fn judge(store: &dyn Store, instances: &[Instance]) -> Result<Vec<(Health, bool)>> {
    let now = store.clock().now();
    let open = || instances.iter().filter(|one| !one.status.is_terminal());
    let around = around(store, open().map(|one| one.id).collect()).await?;
    let workers = match open().any(|one| is_judged_by_workers(one, now)) {
        true => Some(store.workers().await?),
        false => None,
    };
    let contracts: BTreeSet<_> = open()
        .filter(|one| is_judged_by_contract(one))
        .filter_map(|one| one.contract)
        .collect();
    let terms = terms::read(store, contracts).await?;
    let judged = instances.iter().map(|one| {
        let found = around.get(&one.id);
        let current = found.filter(|found| found.stamp == Stamp::from(one));
        let world = World {
            around: current.map(|found| &found.around),
            workers: workers.as_deref(),
            terms: one
                .contract
                .and_then(|id| terms.get(&id))
                .map(|terms| &**terms),
            now: Some(now),
        };
        let has_moved = current.is_none() && !one.status.is_terminal();
        (health(one, world), has_moved)
    });
    Ok(judged.collect())
}

async fn around(
    store: &dyn Store,
    ids: Vec<InstanceId>,
) -> Result<HashMap<InstanceId, Surroundings>> {
    let mut found = HashMap::with_capacity(ids.len());
    for some in ids.chunks(IDS_MOST) {
        let around = store.around(some).await?.into_iter();
        found.extend(around.map(|one| (one.id, one)));
    }
    Ok(found)
}
