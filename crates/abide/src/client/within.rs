//! Calls inside the caller's own transaction (rule 17.1).

use abide_kernel::{Answer, Op};

use super::Client;
use crate::Error;

/// A transaction of your own in the same database, from `rusqlite` or `tokio_postgres`, in the versions that
/// `abide::sqlite` and `abide::postgres` re-export.
pub trait Within {
    /// The result: immediate with SQLite, a future with PostgreSQL.
    type Answer<R: Send + 'static>;

    /// Runs operations in the transaction, and converts their answers with `then`.
    fn run<R: Send + 'static>(
        self,
        client: &Client,
        ops: Result<Vec<Op>, Error>,
        then: impl FnOnce(Result<Vec<Answer>, Error>) -> R + Send + 'static,
    ) -> Self::Answer<R>;
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use abide_sqlite::rusqlite::{Savepoint, Transaction};

    use super::*;

    macro_rules! within_sqlite {
        ($of:ident) => {
            impl Within for &$of<'_> {
                type Answer<R: Send + 'static> = R;

                fn run<R: Send + 'static>(
                    self,
                    client: &Client,
                    ops: Result<Vec<Op>, Error>,
                    then: impl FnOnce(Result<Vec<Answer>, Error>) -> R + Send + 'static,
                ) -> R {
                    let now = client.store.clock().now();
                    then(ops.and_then(|ops| {
                        Ok(abide_sqlite::run_within(self, &ops, now, &client.limits)?)
                    }))
                }
            }
        };
    }

    within_sqlite!(Transaction);
    within_sqlite!(Savepoint);
}

#[cfg(feature = "postgres")]
mod postgres {
    use abide_postgres::tokio_postgres::Transaction;
    use futures_util::future::BoxFuture;

    use super::*;

    impl<'t> Within for &'t Transaction<'_> {
        type Answer<R: Send + 'static> = BoxFuture<'t, R>;

        fn run<R: Send + 'static>(
            self,
            client: &Client,
            ops: Result<Vec<Op>, Error>,
            then: impl FnOnce(Result<Vec<Answer>, Error>) -> R + Send + 'static,
        ) -> BoxFuture<'t, R> {
            let (now, limits) = (client.store.clock().now(), client.limits.clone());
            Box::pin(async move {
                let answers = match ops {
                    Ok(ops) => abide_postgres::run_within(self, &ops, now, &limits)
                        .await
                        .map_err(Error::from),
                    Err(error) => Err(error),
                };
                then(answers)
            })
        }
    }
}
