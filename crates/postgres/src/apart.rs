//! Work that goes on whether or not its caller polls it.

use abide_kernel::{Error, Result};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// Does something in a task of its own, until the caller drops it.
///
/// What has a connection or holds locks must not depend on being polled: the step of a workflow is not polled while its
/// workflow is committed, and that commit may want the very row that the step has locked, or the last connection.
pub(crate) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let task = tokio::spawn(work.in_current_span());
    match AbortOnDropHandle::new(task).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Error::Closed),
        },
    }
}
