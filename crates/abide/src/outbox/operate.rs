//! Functions for operators of the outbox: its depth, and its refused requests.

use abide_core::model::OutboxId;
use abide_kernel::{Answer, Op, OutboxDepth, RefusedPage};

use crate::{Abide, Error};

impl Abide {
    /// Returns how many requests wait in the outbox, since when, and how many were refused.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), abide::BoxError> {
    /// let abide = abide::Abide::open("memory:").await?;
    /// assert_eq!(abide.outbox_depth().await?.refused, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn outbox_depth(&self) -> Result<OutboxDepth, Error> {
        Ok(self.store().outbox_depth().await?)
    }

    /// Returns a page of the refused requests of the outbox, newest first, beginning below `before`.
    pub async fn refused_requests(
        &self,
        before: Option<OutboxId>,
        limit: usize,
    ) -> Result<RefusedPage, Error> {
        Ok(self.store().refused(before, limit).await?)
    }

    /// Puts refused requests back at the end of the outbox, so that they are taken again. Returns their number.
    pub async fn retry_refused(&self, ids: &[OutboxId]) -> Result<usize, Error> {
        self.settle_refused(ids, true).await
    }

    /// Deletes refused requests. Returns their number.
    pub async fn discard_refused(&self, ids: &[OutboxId]) -> Result<usize, Error> {
        self.settle_refused(ids, false).await
    }

    async fn settle_refused(&self, ids: &[OutboxId], again: bool) -> Result<usize, Error> {
        let ids = ids.to_vec();
        let answers = self
            .client()
            .run_all(vec![Op::Refused { ids, again }])
            .await?;
        match answers.first() {
            Some(Answer::Touched { count, .. }) => Ok(*count),
            _ => Err(Error::unexpected_answer()),
        }
    }
}
