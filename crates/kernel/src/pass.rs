//! A pass of the sweep: batches, until no expired data is left.

use std::time::Duration;

use abide_core::model::Timestamp;

use crate::{Answer, Cursor, Error, Op, Result, Survey, SweepRequest};

/// The maximum and minimum number of items of each kind that one batch deletes.
const BATCH_MAX: usize = 500;
const BATCH_MIN: usize = 5;
/// A batch that takes longer than `LONG` makes the next one smaller; one that takes less than `SHORT` lets it grow.
/// Other transactions must not wait for it.
const LONG: Duration = Duration::from_millis(50);
const SHORT: Duration = Duration::from_millis(15);

/// A pass of the sweep (rule 16.2): the batches to send, each from where the last one ended, and then a survey of the
/// contracts in use.
///
/// The sender pauses between batches for as long as the last batch took, so a sweep takes at most half of the store's
/// time.
#[derive(Clone, Copy, Debug)]
pub struct SweepPass {
    request: SweepRequest,
    /// The next page of the survey, once nothing is left to sweep.
    survey: Option<Survey>,
    whole: bool,
    deleted: usize,
    spared: usize,
}

impl SweepPass {
    /// Creates a pass over instances that ended before `before`. It starts at the beginning, or where an earlier pass
    /// ended.
    pub fn new(before: Timestamp, after: Option<Cursor>) -> Self {
        Self {
            request: SweepRequest {
                before,
                after,
                limit: BATCH_MAX,
            },
            survey: None,
            whole: after.is_none(),
            deleted: 0,
            spared: 0,
        }
    }

    /// Returns the pass after this one. If many instances were spared, it begins where this one ended, unless it must
    /// be `whole`. Spared instances are deleted together with the instances that they were spared for, so not every
    /// pass needs to examine them again.
    #[must_use]
    pub fn next(&self, before: Timestamp, whole: bool) -> Self {
        let goes_on = !whole && self.spared > BATCH_MAX;
        let mut next = Self::new(before, self.request.after.filter(|_| goes_on));
        next.request.limit = self.request.limit;
        if goes_on {
            next.spared = self.spared;
        }
        next
    }

    /// Returns the next batch.
    pub fn batch(&self) -> Op {
        match self.survey {
            Some(page) => Op::Survey(page),
            None => Op::Sweep(self.request),
        }
    }

    /// Records the answer to a batch and its duration. Returns `true` if there may be more.
    pub fn note(&mut self, answers: &[Answer], took: Duration) -> Result<bool> {
        let (deleted, spared, next, more) = match answers.first() {
            Some(&Answer::Swept {
                deleted,
                spared,
                next,
                more,
            }) => (deleted, spared, next, more),
            Some(&Answer::Surveyed { next, .. }) => {
                self.survey = next;
                return Ok(next.is_some());
            }
            _ => {
                return Err(Error::unexpected_answer());
            }
        };
        self.deleted += deleted;
        self.spared += spared;
        self.request.after = next;
        let limit = &mut self.request.limit;
        if took > LONG {
            *limit = (*limit / 2).max(BATCH_MIN);
        } else if took < SHORT {
            *limit = (*limit * 2).min(BATCH_MAX);
        }
        if !more {
            self.survey = Some(Survey::default());
        }
        Ok(true)
    }

    /// Records that a batch failed. The next one is smaller, and may succeed.
    pub fn failed(&mut self) {
        self.request.limit = (self.request.limit / 2).max(BATCH_MIN);
    }

    /// `true` if the sender must pause before the next batch. A survey first checks if there is anything to do, which
    /// is quick.
    pub fn rests(&self) -> bool {
        self.survey != Some(Survey::default())
    }

    /// Returns the number of deleted instances.
    pub const fn deleted(&self) -> usize {
        self.deleted
    }

    /// `true` if it has examined all expired instances from the beginning.
    pub const fn is_whole(&self) -> bool {
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(more: bool) -> [Answer; 1] {
        [Answer::Swept {
            deleted: 3,
            spared: 400,
            next: None,
            more,
        }]
    }

    fn limit(pass: &SweepPass) -> usize {
        match pass.batch() {
            Op::Sweep(request) => request.limit,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_slow_batch_is_followed_by_a_smaller_one_and_a_quick_one_by_a_larger() {
        // rule 16.2
        let mut pass = SweepPass::new(Timestamp::default(), None);
        assert!(pass.note(&swept(true), Duration::from_millis(400)).unwrap());
        assert_eq!(limit(&pass), 250);
        for _ in 0..20 {
            pass.note(&swept(true), Duration::from_secs(1)).unwrap();
        }
        assert_eq!(limit(&pass), BATCH_MIN);
        for _ in 0..20 {
            pass.note(&swept(true), Duration::from_millis(1)).unwrap();
        }
        assert_eq!(limit(&pass), BATCH_MAX);
        pass.failed();
        assert!(pass.note(&swept(false), LONG).unwrap());
        assert_eq!(limit(&pass.next(Timestamp::default(), false)), 250);
        assert!(pass.note(&[Answer::Done], LONG).is_err());
    }

    #[test]
    fn a_survey_ends_a_pass() {
        // rule 16.2
        let mut pass = SweepPass::new(Timestamp::default(), None);
        assert!(pass.note(&swept(true), SHORT).unwrap());
        assert!(matches!(pass.batch(), Op::Sweep(_)) && pass.rests());
        assert!(pass.note(&swept(false), SHORT).unwrap());
        assert!(!pass.rests());
        let page = |after| Survey {
            begun: Some(Timestamp::default()),
            after: abide_core::model::InstanceId(after),
        };
        for (next, goes_on) in [(Some(page(5)), true), (None, false)] {
            assert!(matches!(pass.batch(), Op::Survey(_)));
            let answer = Answer::Surveyed { next, deleted: 0 };
            assert_eq!(pass.note(&[answer], SHORT).unwrap(), goes_on);
        }
        let next = pass.next(Timestamp::default(), false);
        assert!(matches!(next.batch(), Op::Sweep(_)));
    }

    #[test]
    fn spared_instances_are_not_examined_again_by_each_pass() {
        // rule 16.2
        let at = Cursor {
            finished_at: Timestamp::from_micros(7),
            id: abide_core::model::InstanceId(7),
        };
        let answer = |spared| {
            [Answer::Swept {
                deleted: 0,
                spared,
                next: Some(at),
                more: false,
            }]
        };
        let after = |pass: &SweepPass| match pass.batch() {
            Op::Sweep(request) => request.after,
            other => panic!("{other:?}"),
        };
        let now = Timestamp::default();
        let mut few = SweepPass::new(now, None);
        few.note(&answer(BATCH_MAX), SHORT).unwrap();
        assert_eq!(after(&few.next(now, false)), None);
        let mut many = SweepPass::new(now, None);
        many.note(&answer(BATCH_MAX + 1), SHORT).unwrap();
        let mut next = many.next(now, false);
        assert_eq!((after(&next), next.is_whole()), (Some(at), false));
        next.note(&answer(0), SHORT).unwrap();
        assert_eq!(
            after(&next.next(now, false)),
            Some(at),
            "nor by the one after it"
        );
        assert_eq!(after(&next.next(now, true)), None);
    }
}
