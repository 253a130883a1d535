//! Finds and deletes contracts that no instance names any more.

use std::collections::BTreeSet;

use abide_core::model::{ContractId, Timestamp};
use abide_core::rules::retention::{CONTRACTS_KEPT, CONTRACTS_NOTED};

use crate::run::Turn;
use crate::{Answer, Loads, Result, Survey, Txn, Write};

/// The number of instances that one page reads, and the number of contracts that are deleted at once.
const PAGE: usize = 1_000;

/// Reads a page of instances, and records that the contracts they name are in use. After the last page, deletes the
/// contracts that were not used since long before the survey began and that no machine declares (rule 16.2). If an
/// instance is started with a contract meanwhile, that start has recorded the use, or it was recorded within an hour
/// before it.
pub(crate) async fn survey<T: Txn>(turn: &mut Turn<'_, T>, page: Survey) -> Result<Answer> {
    let over = Answer::Surveyed {
        next: None,
        deleted: 0,
    };
    let begun = page.begun.unwrap_or(turn.now);
    let unused_since = begun - CONTRACTS_KEPT;
    if page.begun.is_none() && turn.txn.unused_contracts(unused_since, 1).await?.is_empty() {
        return Ok(over);
    }
    let found = turn.txn.named_contracts(page.after, PAGE).await?;
    let named: BTreeSet<ContractId> = found.iter().filter_map(|(_, contract)| *contract).collect();
    note(turn, named).await?;
    if let Some((last, _)) = found.last() {
        let next = Survey {
            begun: Some(begun),
            after: *last,
        };
        return Ok(Answer::Surveyed {
            next: Some(next),
            deleted: 0,
        });
    }
    let unused = turn.txn.unused_contracts(unused_since, PAGE).await?;
    if unused.is_empty() {
        return Ok(over);
    }
    turn.txn.write(Write::ForgetContracts(&unused)).await?;
    // After a full page there may be more. The next page begins after the last instance, and continues to delete.
    let is_full = unused.len() == PAGE;
    Ok(Answer::Surveyed {
        next: is_full.then_some(Survey {
            begun: Some(begun),
            after: page.after,
        }),
        deleted: unused.len(),
    })
}

/// Records that contracts are in use.
pub(crate) async fn note<T: Txn>(
    turn: &mut Turn<'_, T>,
    contracts: BTreeSet<ContractId>,
) -> Result<()> {
    if contracts.is_empty() {
        return Ok(());
    }
    let contracts: Vec<ContractId> = contracts.into_iter().collect();
    let before: Timestamp = turn.now - CONTRACTS_NOTED;
    turn.txn
        .write(Write::NoteContracts {
            ids: &contracts,
            before,
            now: turn.now,
        })
        .await
}
