//! Starts inside the caller's own transaction (rule 17.1).

use abide_core::model::{Limits, Refusal, Start, Started, Timestamp};
use abide_kernel::{Answer, Op};

use super::{Client, Handle, Spec, StartError};
use crate::Error;
use crate::machine::Definition;

/// A transaction of the caller's own, in the same database: of `rusqlite` or of `tokio_postgres`, in the versions that
/// `abide::sqlite` and `abide::postgres` re-export.
pub trait Within<D: Definition> {
    /// The answer: at once from SQLite, to be awaited from PostgreSQL.
    type Answer;

    /// Starts an instance in it.
    fn start(self, spec: Spec<D, Client>) -> Self::Answer;
}

impl<D: Definition> Spec<D, Client> {
    /// Starts it inside your own transaction: it is there when that commits, and never was when it rolls back. The
    /// workers hear of it when it commits.
    ///
    /// With PostgreSQL: `abide.start(…).within(&transaction).await?`; with SQLite, which answers at once:
    /// `abide.start(…).within(&transaction)?`. When this answers an error other than a duplicate, roll back.
    ///
    /// ```
    /// # use abide::{Abide, Job};
    /// # use abide::sqlite::rusqlite::{Connection, TransactionBehavior};
    /// const SHIP: Job<u32> = Job::new("ship");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("shop.db");
    /// let abide = Abide::open(&format!("sqlite:{}", path.display())).await?;
    /// let mut mine = Connection::open(&path)?;
    /// mine.execute_batch("create table orders (id integer primary key)")?;
    ///
    /// let transaction = mine.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// transaction.execute("insert into orders values (42)", [])?;
    /// let job = abide.start(SHIP, 42).key("order:42").within(&transaction)?;
    /// transaction.commit()?;                              // the order and its job, or neither
    /// assert!(job.get().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<T: Within<D>>(self, transaction: T) -> T::Answer {
        transaction.start(self)
    }

    fn op(self) -> Result<(Client, Start, bool, Timestamp, Limits), Error> {
        let (client, start, or_existing) = self.parts()?;
        let (now, limits) = (client.store.clock().now(), client.limits.clone());
        Ok((client, start, or_existing, now, limits))
    }
}

fn only(answers: Vec<Answer>) -> Result<Result<Started, Refusal>, Error> {
    match answers.into_iter().next() {
        Some(Answer::Started(started)) => started.into_iter().next(),
        _ => None,
    }
    .ok_or_else(|| Error::Broken("a start was answered with something else".into()))
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use abide_sqlite::rusqlite::{Savepoint, Transaction};

    use super::*;

    macro_rules! within_sqlite {
        ($of:ident) => {
            impl<D: Definition> Within<D> for &$of<'_> {
                type Answer = Result<Handle<D::Output>, StartError>;

                fn start(self, spec: Spec<D, Client>) -> Self::Answer {
                    let (client, start, or_existing, now, limits) = spec.op()?;
                    let key = start.key.clone();
                    let ops = [Op::Start(vec![start])];
                    let answers =
                        abide_sqlite::run_within(self, &ops, now, &limits).map_err(Error::from)?;
                    Spec::<D, Client>::handle(&client, key, or_existing, only(answers)?)
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

    impl<'t, D: Definition + 'static> Within<D> for &'t Transaction<'_> {
        type Answer = BoxFuture<'t, Result<Handle<D::Output>, StartError>>;

        fn start(self, spec: Spec<D, Client>) -> Self::Answer {
            Box::pin(async move {
                let (client, start, or_existing, now, limits) = spec.op()?;
                let key = start.key.clone();
                let ops = [Op::Start(vec![start])];
                let answers = abide_postgres::run_within(self, &ops, now, &limits)
                    .await
                    .map_err(Error::from)?;
                Spec::<D, Client>::handle(&client, key, or_existing, only(answers)?)
            })
        }
    }
}
