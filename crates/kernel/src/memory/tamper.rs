//! Direct changes of the tables, for tests that find and repair states that no operation produces.

use std::sync::Arc;

use abide_core::model::{Command, CommandId, Instance, InstanceId, Row};

use super::Memory;
use crate::{Error, Result};

impl Memory {
    /// Changes an instance without the engine's knowledge: `change` gets its row, and the instance is deleted if it
    /// returns `false`. Errors: the instance does not exist, or an index refuses it.
    pub fn tamper(&self, id: InstanceId, change: impl FnOnce(&mut Row) -> bool) -> Result<()> {
        let mut guard = self.locked();
        let tables = guard.as_mut().ok_or(Error::Closed)?;
        let record = tables.records().get(&id);
        let missing = || Error::Broken(format!("instance {id} is not there"));
        let mut record = Instance::clone(record.ok_or_else(missing)?);
        let kept = change(&mut record.row).then(|| Arc::new(record));
        tables.put(id, kept).map(drop)
    }

    /// Changes the record of a signal or an update without the engine's knowledge, or deletes it. Errors: the record
    /// does not exist, or an index refuses it.
    pub fn tamper_with_command(
        &self,
        id: CommandId,
        change: impl FnOnce(&mut Command) -> bool,
    ) -> Result<()> {
        let mut guard = self.locked();
        let tables = guard.as_mut().ok_or(Error::Closed)?;
        let command = tables.commands().get(id);
        let missing = || Error::Broken(format!("record {id} is not there"));
        let mut command = Command::clone(command.ok_or_else(missing)?);
        let kept = change(&mut command).then(|| Arc::new(command));
        tables.put_command(id, kept).map(drop)
    }
}
