//! Contracts and documents in memory.

use std::ops::Bound;

use abide_core::model::{ContractId, Document, DocumentKind, InstanceId, Json, Name, Timestamp};

use super::pieces::MemoryTxn;

impl MemoryTxn<'_> {
    /// Writes or deletes a contract.
    pub fn put_contract(&mut self, id: ContractId, contract: Option<(Json, Timestamp)>) {
        let undo = self.tables.put_contract(id, contract);
        self.log.push(undo);
    }

    /// Writes contracts. Existing ones are not changed.
    pub fn define_now(&mut self, contracts: &[(ContractId, Json)], now: Timestamp) {
        for (id, contract) in contracts {
            if !self.tables.contracts().contains_key(id) {
                self.put_contract(*id, Some((contract.clone(), now)));
            }
        }
    }

    /// Records that contracts are used, if their last recorded use is before `before`.
    pub fn note_now(&mut self, ids: &[ContractId], before: Timestamp, now: Timestamp) {
        for id in ids {
            if let Some((contract, used_at)) = self.tables.contracts().get(id)
                && *used_at < before
            {
                let contract = contract.clone();
                self.put_contract(*id, Some((contract, now)));
            }
        }
    }

    /// Returns the first instances above an id, each with the contract that it names.
    pub fn named_above(
        &self,
        above: InstanceId,
        limit: usize,
    ) -> Vec<(InstanceId, Option<ContractId>)> {
        let above = (Bound::Excluded(above), Bound::Unbounded);
        let rows = self.tables.records().range(above).take(limit);
        rows.map(|(id, record)| (*id, record.row.contract))
            .collect()
    }

    /// Returns contracts that were not used since `before` and that no machine declares.
    pub fn unused_since(&self, before: Timestamp, limit: usize) -> Vec<ContractId> {
        let declares = |id: &ContractId| {
            let mut declared = self.tables.declared().values();
            declared.any(|machine| machine.contract == Some(*id))
        };
        let contracts = self.tables.contracts().iter();
        let unused = contracts.filter(|(_, (_, used_at))| *used_at < before);
        let unused = unused.map(|(id, _)| *id).filter(|id| !declares(id));
        unused.take(limit).collect()
    }

    /// Writes documents, or deletes those without a body.
    pub fn keep_now(&mut self, documents: &[(DocumentKind, &Name, Option<&Json>)], now: Timestamp) {
        for (kind, name, body) in documents {
            let document = body.map(|body| Document {
                kind: *kind,
                name: (*name).clone(),
                body: body.clone(),
                updated_at: now,
            });
            let undo = self.tables.put_document((*kind, (*name).clone()), document);
            self.log.push(undo);
        }
    }
}
