//! Contradicting outcomes: several for one claim in one request.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Commit, Epoch, InstanceId, Json, Outcome, Refusal, WorkerId};

/// The claims that occur with different outcomes in one request (rule 1.7).
#[derive(Debug, Default)]
pub struct Contradicted(BTreeSet<Named>);

/// The parts of a claim that distinguish it from others.
type Named = (InstanceId, Epoch, WorkerId);

impl Contradicted {
    /// Adds the claims of one more request, given all its commits. Outcomes are compared as values: the order of keys
    /// and whitespace make no difference.
    pub fn note<'c>(&mut self, commits: impl IntoIterator<Item = &'c Commit> + Clone) {
        // Almost no request names an instance twice.
        let ids = commits.clone().into_iter().map(|commit| commit.claim.id());
        if is_distinct(ids.collect()) {
            return;
        }
        let mut first: BTreeMap<Named, &Outcome> = BTreeMap::new();
        for commit in commits {
            let before = *first.entry(named(commit)).or_insert(&commit.outcome);
            if !is_same(before, &commit.outcome) {
                self.0.insert(named(commit));
            }
        }
    }

    /// `true` if the request has another outcome for the claim of this commit: it is unknown which one was meant.
    pub fn has(&self, commit: &Commit) -> bool {
        !self.0.is_empty() && self.0.contains(&named(commit))
    }
}

/// Returns the reason why none of them is committed.
pub fn refusal() -> Refusal {
    Refusal::BadOutcome {
        problem:
            "this request has two different outcomes for this claim; send the one that is meant"
                .to_owned(),
    }
}

fn is_distinct(mut ids: Vec<InstanceId>) -> bool {
    ids.sort_unstable();
    ids.is_sorted_by(|one, next| one < next)
}

fn named(commit: &Commit) -> Named {
    let claim = &commit.claim;
    (claim.id(), claim.epoch(), claim.worker())
}

fn is_same(one: &Outcome, other: &Outcome) -> bool {
    // Avoids serializing an outcome to compare it with itself.
    std::ptr::eq(one, other) || one == other || value(one) == value(other)
}

/// Returns the canonical text of an outcome, the same however it was written.
fn value(outcome: &Outcome) -> Option<String> {
    Json::of(outcome).ok().map(|written| written.canonical())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::Claim;

    fn commit(id: i64, epoch: i64, worker: i64, result: &str) -> Commit {
        let result = Json::parse(result.to_owned()).unwrap();
        Commit {
            claim: Claim::granted(InstanceId(id), Epoch(epoch), WorkerId(worker), None, None),
            outcome: Outcome::Done { result },
            keep: false,
            took: Duration::ZERO,
            error: None,
        }
    }

    #[test]
    fn only_different_values_for_the_same_claim_contradict_each_other() {
        // rule 1.7
        let sent = |all: &[(i64, i64, i64, &str)]| {
            let commits: Vec<_> = all
                .iter()
                .map(|one| commit(one.0, one.1, one.2, one.3))
                .collect();
            let mut found = Contradicted::default();
            found.note(&commits);
            let positions = commits.iter().enumerate();
            let positions = positions.filter(|(_, commit)| found.has(commit));
            positions.map(|(position, _)| position).collect::<Vec<_>>()
        };
        assert_eq!(
            sent(&[
                (1, 1, 1, "1"),
                (2, 1, 1, "2"),
                (1, 1, 1, "2"),
                (1, 1, 1, "1")
            ]),
            [0, 2, 3]
        );
        let same = [
            (1, 1, 1, r#"{"a":1,"b":[2,3]}"#),
            (1, 1, 1, r#"{ "b": [2, 3], "a": 1 }"#),
        ];
        assert_eq!(sent(&same), [] as [usize; 0]);
        assert_eq!(sent(&[(1, 1, 1, "[1,2]"), (1, 1, 1, "[2,1]")]), [0, 1]);
        // A claim of another epoch or worker is another claim.
        assert_eq!(
            sent(&[(1, 1, 1, "1"), (1, 2, 1, "2"), (1, 1, 2, "3")]),
            [] as [usize; 0]
        );
    }

    #[test]
    fn requests_are_compared_each_by_itself() {
        // rule 1.7: a later request for a claim that was committed is a repeat.
        let (one, other) = (commit(1, 1, 1, "1"), commit(1, 1, 1, "2"));
        let mut found = Contradicted::default();
        found.note([&one]);
        found.note([&other]);
        assert!(!found.has(&one) && !found.has(&other));
        found.note([&one, &other]);
        assert!(found.has(&one) && found.has(&other));
    }
}
