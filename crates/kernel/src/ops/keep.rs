//! Writes documents, which replace those of the same kind and name, or deletes them.

use std::collections::BTreeMap;

use abide_core::model::{DocumentKind, Json, Name};

use crate::run::Turn;
use crate::{Answer, Result, Txn, Write};

/// Writes documents. Of several entries for one document the last counts. All or nothing.
pub(crate) async fn keep<T: Txn>(
    turn: &mut Turn<'_, T>,
    documents: &[(DocumentKind, Name, Option<Json>)],
) -> Result<Answer> {
    turn.limits.check_batch(documents.len())?;
    for (_, _, body) in documents {
        if let Some(body) = body {
            turn.limits.check_state(body)?;
        }
    }
    // By kind and name, each once, so that all transactions lock documents in the same order.
    let last: BTreeMap<(DocumentKind, &Name), Option<&Json>> = documents
        .iter()
        .map(|(kind, name, body)| ((*kind, name), body.as_ref()))
        .collect();
    let last: Vec<(DocumentKind, &Name, Option<&Json>)> = last
        .into_iter()
        .map(|((kind, name), body)| (kind, name, body))
        .collect();
    if !last.is_empty() {
        turn.txn.write(Write::Keep(&last, turn.now)).await?;
    }
    Ok(Answer::Done)
}
