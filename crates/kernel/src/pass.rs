//! A pass of the sweep: batch after batch, until nothing that has expired is left.

use std::time::Duration;

use abide_core::model::Timestamp;

use crate::{Answer, Cursor, Error, Op, Result, Survey, SweepRequest};

/// How much one batch deletes of each kind, at most and at least.
const BATCH_MAX: usize = 500;
const BATCH_MIN: usize = 5;
/// A batch that takes longer is made smaller, one that takes less may grow again: others must not wait for it.
const LONG: Duration = Duration::from_millis(50);
const SHORT: Duration = Duration::from_millis(15);

/// A pass of the sweep (rule 16.2): the batches to send, each from where the last one ended, and then a survey of the
/// contracts that are in use.
///
/// Whoever sends them leaves the store to others in between, for as long as the batch took: a sweep takes half of the
/// store's time at most.
#[derive(Clone, Copy, Debug)]
pub struct SweepPass {
    request: SweepRequest,
    /// The page of the survey that is next, once nothing is left to sweep.
    survey: Option<Survey>,
    whole: bool,
    deleted: usize,
    spared: usize,
}

impl SweepPass {
    /// A pass over what ended before that moment, from a place on: the beginning, or where an earlier pass ended.
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

    /// The pass after this one. It begins where this one ended when many were spared before that, unless it is to be
    /// `whole`: those go with who they were spared for, and need not be looked at again each time.
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

    /// The next batch.
    pub fn batch(&self) -> Op {
        match self.survey {
            Some(page) => Op::Survey(page),
            None => Op::Sweep(self.request),
        }
    }

    /// Notes what became of a batch, and how long that took; whether there may be more.
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
                let text = "a sweep was answered with something else";
                return Err(Error::Broken(text.into()));
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

    /// Notes that a batch failed: a smaller one may not.
    pub fn failed(&mut self) {
        self.request.limit = (self.request.limit / 2).max(BATCH_MIN);
    }

    /// Whether others are to have the store before the next batch. A survey asks first whether there is anything to look
    /// for, which is quick.
    pub fn rests(&self) -> bool {
        self.survey != Some(Survey::default())
    }

    /// How many instances were deleted.
    pub const fn deleted(&self) -> usize {
        self.deleted
    }

    /// Whether it has looked at everything that expired, from the beginning on.
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
    fn what_was_spared_is_not_looked_at_again_by_each_pass() {
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
