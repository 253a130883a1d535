//! A cache of compiled contracts, one per process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use abide_core::model::{Contract, ContractId, Json, Refusal};
use abide_core::rules::contract::Terms;

use crate::{Error, Loads, Result, Store, Txn};

/// The maximum number of cached contracts. When it is reached, the cache is emptied.
const MOST: usize = 4096;

/// The cache. A contract's id is derived from its content, so an entry is valid for every store.
static KNOWN: LazyLock<Mutex<HashMap<ContractId, Arc<Terms>>>> = LazyLock::new(Mutex::default);

/// Refuses an invalid contract.
pub(crate) fn check(contract: &Contract) -> std::result::Result<(), Refusal> {
    let id = contract.id();
    if !locked().contains_key(&id) {
        keep(id, Arc::new(Terms::new(contract)?));
    }
    Ok(())
}

/// Returns a contract if it is in the cache.
pub(crate) fn known(id: ContractId) -> Option<Arc<Terms>> {
    locked().get(&id).cloned()
}

fn locked() -> MutexGuard<'static, HashMap<ContractId, Arc<Terms>>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keep(id: ContractId, terms: Arc<Terms>) {
    let mut known = locked();
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(id, terms);
}

/// Compiled contracts, by id.
pub(crate) type Ready = HashMap<ContractId, Arc<Terms>>;

/// Returns the contracts with these ids. All of them must exist.
pub(crate) async fn load<T: Txn>(txn: &mut T, ids: BTreeSet<ContractId>) -> Result<Ready> {
    let (mut found, unknown) = met(ids);
    if unknown.is_empty() {
        return Ok(found);
    }
    for (id, json) in txn.contracts(&unknown).await? {
        found.insert(id, ready(id, &json)?);
    }
    for id in &unknown {
        if !found.contains_key(id) {
            return Err(Error::Broken(format!(
                "contract {id} is named by an instance and not there"
            )));
        }
    }
    Ok(found)
}

/// Returns those of the contracts with these ids that exist and can be parsed. For readers, which must not fail because
/// of one bad contract.
pub(crate) async fn find<T: Txn>(txn: &mut T, ids: BTreeSet<ContractId>) -> Result<Ready> {
    let (mut found, unknown) = met(ids);
    if !unknown.is_empty() {
        found.extend(readable(txn.contracts(&unknown).await?));
    }
    Ok(found)
}

/// Does the same outside a transaction.
pub(crate) async fn read(store: &dyn Store, ids: BTreeSet<ContractId>) -> Result<Ready> {
    let (mut found, mut unknown) = met(ids);
    while !unknown.is_empty() {
        let page = store.contracts_page(&unknown).await?;
        found.extend(readable(page.found));
        unknown = page.rest;
    }
    Ok(found)
}

/// Splits these ids into the contracts that are cached and the ids that are not.
fn met(ids: BTreeSet<ContractId>) -> (Ready, Vec<ContractId>) {
    let mut found = HashMap::with_capacity(ids.len());
    let mut unknown = Vec::new();
    let known = locked();
    for id in ids {
        match known.get(&id) {
            Some(terms) => drop(found.insert(id, terms.clone())),
            None => unknown.push(id),
        }
    }
    (found, unknown)
}

fn readable(stored: Vec<(ContractId, Json)>) -> impl Iterator<Item = (ContractId, Arc<Terms>)> {
    let stored = stored.into_iter();
    stored.filter_map(|(id, json)| Some((id, ready(id, &json).ok()?)))
}

/// Compiles a stored contract, and caches it.
fn ready(id: ContractId, json: &Json) -> Result<Arc<Terms>> {
    let broken = |problem: String| Error::Broken(format!("contract {id}: {problem}"));
    let contract: Contract = json.to().map_err(|error| broken(error.to_string()))?;
    let terms = Arc::new(Terms::stored(&contract));
    keep(id, terms.clone());
    Ok(terms)
}
