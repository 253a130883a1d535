//! A handful of connections, lent out one at a time.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_kernel::{Error, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Client;

use crate::connect::Connector;

/// A handful of connections, lent out one at a time. One that broke is dropped, and another made in its place when it
/// is wanted.
#[derive(Debug)]
pub(crate) struct Pool {
    connector: Connector,
    permits: Semaphore,
    /// The connections that nobody has, the one used last on top.
    idle: Mutex<Vec<Arc<Client>>>,
}

/// A connection on loan; given back when it is dropped, unless a transaction may be open on it.
pub(crate) struct Loan<'p> {
    pool: &'p Pool,
    client: Arc<Client>,
    in_transaction: bool,
    #[expect(dead_code, reason = "held: the loan lasts as long as this does")]
    permit: SemaphorePermit<'p>,
}

impl Pool {
    /// A pool of that many connections, none of which is made yet.
    pub fn new(connector: Connector, size: usize) -> Self {
        let permits = Semaphore::new(size.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            connector,
            permits,
            idle: Mutex::default(),
        }
    }

    /// A connection; waits while all of them are lent out.
    pub async fn get(&self) -> Result<Loan<'_>> {
        let permit = self.permits.acquire().await.map_err(|_| Error::Closed)?;
        let idle = std::iter::from_fn(|| self.idle().pop()).find(|client| !client.is_closed());
        let client = match idle {
            Some(client) => client,
            None => Arc::new(self.connector.connect(None).await?),
        };
        Ok(Loan {
            pool: self,
            client,
            in_transaction: false,
            permit,
        })
    }

    /// Lends out nothing any more, and ends the connections when those on loan are back.
    pub async fn close(&self) {
        self.permits.close();
        self.idle().clear();
        self.connector.wait().await;
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Loan<'_> {
    /// From now on a transaction may be open: whoever is cancelled before it [ends](Self::ended) leaves a connection
    /// that nobody else may use.
    pub fn begun(&mut self) {
        self.in_transaction = true;
    }

    /// No transaction is open any more.
    pub fn ended(&mut self) {
        self.in_transaction = false;
    }
}

impl Deref for Loan<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let usable = !self.in_transaction && !self.client.is_closed();
        if usable && !self.pool.permits.is_closed() {
            self.pool.idle().push(Arc::clone(&self.client));
        }
    }
}
