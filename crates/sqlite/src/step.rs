//! A transaction in which a step writes its own rows, and its outcome is committed with them (rule 17.2).

use std::sync::Arc;

use abide_core::model::Limits;
use abide_kernel::{Answer, Bus, Clock, Error, Op, OwnTransaction, Result, was_taken};
use futures_util::future::BoxFuture;
use rusqlite::Connection;

use crate::error::classed;
use crate::poison::Poison;
use crate::within::run_lent;

/// A transaction on the store's file, open for writing: nothing else can write until it ends, so keep it short.
///
/// Writes through it are committed together with the step's outcome. If dropped before that, it is rolled back.
pub struct StepTransaction {
    conn: Connection,
    clock: Arc<dyn Clock>,
    limits: Limits,
    bus: Bus,
    poison: Poison,
}

impl StepTransaction {
    /// Begins on a connection of its own. Blocks while another transaction writes. If nothing may be written to the file
    /// any more, it is refused.
    pub(crate) fn begin(
        conn: Connection,
        clock: Arc<dyn Clock>,
        limits: Limits,
        bus: Bus,
        poison: Poison,
    ) -> Result<Self> {
        conn.execute_batch("begin immediate").map_err(classed)?;
        poison.check()?;
        Ok(Self {
            conn,
            clock,
            limits,
            bus,
            poison,
        })
    }

    /// Passes the connection to code that writes rows: `transaction.with(|db| db.execute("insert …", []))?`. Do not
    /// begin or commit; abide does.
    pub fn with<R>(&mut self, code: impl FnOnce(&Connection) -> R) -> R {
        code(&self.conn)
    }

    fn end(self, op: Op) -> Result<Answer> {
        let now = self.clock.now();
        let (answers, effects) = run_lent(&self.conn, &[op], now, &self.limits)?;
        let answer = answers
            .into_iter()
            .next()
            .ok_or_else(|| Error::Broken("an operation was not answered".into()))?;
        if was_taken(&answer) {
            self.poison.commit(&self.conn)?;
            self.bus.tell(effects);
        }
        Ok(answer)
    }
}

impl OwnTransaction for StepTransaction {
    fn finish(self: Box<Self>, op: Op) -> BoxFuture<'static, Result<Answer>> {
        Box::pin(async move {
            // Uncommitted writes are rolled back when the connection closes.
            let ended = tokio::task::spawn_blocking(move || self.end(op)).await;
            ended.unwrap_or_else(|_| {
                Err(Error::Unknown(
                    "the thread that ended a step's transaction panicked".into(),
                ))
            })
        })
    }
}

impl std::fmt::Debug for StepTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepTransaction").finish_non_exhaustive()
    }
}
