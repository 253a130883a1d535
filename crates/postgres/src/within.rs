//! The kernel's operations in a transaction of the host.

use abide_core::model::{Limits, Timestamp};
use abide_kernel::{Answer, Op, Result, run_lent};
use tokio_postgres::Transaction as HostTransaction;

use crate::notify::{NOTIFY, Notification};
use crate::param::Param;
use crate::txn::Transaction;

/// Runs operations in a transaction that the host has opened and will commit (rule 17.1).
///
/// Their writes take effect when the host commits, and have no effect if it rolls back. The database notifies waiting
/// processes at the commit; to be notified at once, this process must [listen](crate::Listen) too. After an error, the
/// host's transaction can only be rolled back.
///
/// ```no_run
/// # use abide_kernel::{Clock, Op, Result, SystemClock};
/// # use abide_kernel::model::{Json, Limits, Name, Start};
/// # async fn place(client: &mut abide_postgres::tokio_postgres::Client) -> Result<()> {
/// # let lost = |error: abide_postgres::tokio_postgres::Error| abide_kernel::Error::Unavailable(error.to_string());
/// let transaction = client.transaction().await.map_err(lost)?;
/// transaction.execute("insert into orders default values", &[]).await.map_err(lost)?;
/// let start = Start::of(Name::new("checkout")?, Json::null());
/// let now = SystemClock::default().now();
/// abide_postgres::run_within(&transaction, &[Op::Start(vec![start])], now, &Limits::default()).await?;
/// transaction.commit().await.map_err(lost)?;
/// # Ok(())
/// # }
/// ```
pub async fn run_within(
    transaction: &HostTransaction<'_>,
    ops: &[Op],
    now: Timestamp,
    limits: &Limits,
) -> Result<Vec<Answer>> {
    let mut txn = Transaction::host(transaction.client(), ops);
    let (answers, effects) = run_lent(&mut txn, ops, now, limits).await?;
    if !effects.is_empty() {
        let payload = Notification::of(&effects).payload();
        txn.write(NOTIFY, vec![Param::one(payload.as_str())])?;
    }
    txn.land().await?;
    Ok(answers)
}
