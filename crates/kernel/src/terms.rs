//! Contracts, made ready for use once in a process.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use abide_core::model::{Contract, ContractId, Refusal};
use abide_core::rules::contract::Terms;

use crate::{Error, Result, Txn};

/// How many are kept. A process that meets more forgets them all and begins anew.
const MOST: usize = 4096;

/// A contract's id is made of what it says, so what is known of it is true of every store.
static KNOWN: LazyLock<Mutex<HashMap<ContractId, Arc<Terms>>>> = LazyLock::new(Mutex::default);

/// Refuses a contract that is none.
pub(crate) fn check(contract: &Contract) -> std::result::Result<(), Refusal> {
    let id = contract.id();
    if !locked().contains_key(&id) {
        keep(id, Arc::new(Terms::new(contract)?));
    }
    Ok(())
}

/// A contract that this process has met.
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

/// The contracts with these ids, which must be there.
pub(crate) async fn load<T: Txn>(
    txn: &mut T,
    ids: BTreeSet<ContractId>,
) -> Result<HashMap<ContractId, Arc<Terms>>> {
    let mut found = HashMap::with_capacity(ids.len());
    let mut unknown = Vec::new();
    {
        let known = locked();
        for id in ids {
            match known.get(&id) {
                Some(terms) => drop(found.insert(id, terms.clone())),
                None => unknown.push(id),
            }
        }
    }
    if unknown.is_empty() {
        return Ok(found);
    }
    for (id, json) in txn.contracts(&unknown).await? {
        let broken = |problem: String| Error::Broken(format!("contract {id}: {problem}"));
        let contract: Contract = json.to().map_err(|error| broken(error.to_string()))?;
        found.insert(id, Arc::new(Terms::stored(&contract)));
    }
    for id in &unknown {
        let Some(terms) = found.get(id) else {
            return Err(Error::Broken(format!(
                "contract {id} is named by an instance and not there"
            )));
        };
        keep(*id, terms.clone());
    }
    Ok(found)
}
