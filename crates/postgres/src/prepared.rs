//! The prepared statements of one connection.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, RowStream, Statement};

use crate::param::Param;
use crate::statements::HOT;

/// Sends a statement, as the prepared one if there is one.
pub(crate) async fn send(
    client: &Client,
    prepared: Option<Statement>,
    sql: &str,
    params: Vec<Param>,
) -> Result<RowStream, tokio_postgres::Error> {
    let params = params.into_iter().map(Param::typed);
    match prepared {
        Some(statement) => {
            let params = params.map(|(value, _)| value);
            client.query_raw(&statement, params).await
        }
        None => client.query_typed_raw(sql, params).await,
    }
}

/// The hot statements that are prepared on one connection.
///
/// A statement is prepared when the connection has used it once. To prepare all of them at once would cost the server
/// some 20 ms for each connection, while the first transaction waits, and most connections use a few of them only.
#[derive(Debug, Default)]
pub(crate) struct Prepared(Mutex<Statements>);

#[derive(Debug, Default)]
struct Statements {
    ready: Vec<(&'static str, Statement)>,
    /// The hot statements that were used and are not prepared yet, with the types of their parameters: the server would
    /// guess others.
    wanted: Vec<(&'static str, Vec<Type>)>,
}

impl Prepared {
    /// Returns the statement if it is prepared. Otherwise, a hot statement is prepared with the next
    /// [`prepare_wanted`](Self::prepare_wanted).
    pub fn find(&self, sql: &'static str, params: &[Param]) -> Option<Statement> {
        let mut statements = self.lock();
        let ready = statements.ready.iter().find(|(text, _)| *text == sql);
        if let Some((_, statement)) = ready {
            return Some(statement.clone());
        }
        let is_wanted = statements.wanted.iter().any(|(text, _)| *text == sql);
        if HOT.contains(&sql) && !is_wanted {
            let types = params.iter().map(|param| param.kind().clone()).collect();
            statements.wanted.push((sql, types));
        }
        None
    }

    /// Prepares the hot statements that were used since the last call, all in one round trip. If it fails, they are
    /// wanted again when they are used again.
    pub async fn prepare_wanted(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let wanted = std::mem::take(&mut self.lock().wanted);
        if wanted.is_empty() {
            return Ok(());
        }
        let prepared = wanted.into_iter();
        let prepared =
            prepared.map(async |(sql, types)| Ok((sql, client.prepare_typed(sql, &types).await?)));
        let prepared = try_join_all(prepared).await?;
        self.lock().ready.extend(prepared);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Statements> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
