//! The committed epochs that a row remembers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Number of epochs before the last committed one that are remembered.
const REMEMBERED: i64 = 64;

/// Returns what a row remembers when these were committed, in order.
fn after(epochs: impl IntoIterator<Item = i64>) -> Settled {
    let mut settled = Settled::default();
    for epoch in epochs {
        settle(&mut settled, Epoch(epoch));
    }
    settled
}

#[test]
fn a_row_that_was_never_committed_remembers_nothing() {
    // rule 1.7
    for epoch in 1..200 {
        assert!(!is_settled(Settled::default(), Epoch(epoch)));
    }
    assert_eq!(after([1]).before, 0, "epoch 0 was never a claim");
}

#[test]
fn the_last_epochs_are_remembered_to_the_end_and_no_further() {
    // rule 1.7
    let settled = after(1..=200);
    for epoch in 1..=300 {
        let remembered = (200 - REMEMBERED..=200).contains(&epoch);
        assert_eq!(is_settled(settled, Epoch(epoch)), remembered, "{epoch}");
    }
    for (last, remembered) in [(65, true), (66, false)] {
        assert_eq!(is_settled(after([1, last]), Epoch(1)), remembered, "{last}");
    }
}

#[test]
fn an_epoch_of_another_generation_forgets_those_before_it() {
    // rules 1.6 and 1.7
    let granted = Epoch::before(1).0 + 1;
    let settled = after([1, 3, granted, granted + 2]);
    let known = |epoch: i64| is_settled(settled, Epoch(epoch));
    assert!(known(granted) && known(granted + 2));
    assert!(!known(1) && !known(3) && !known(granted + 1) && !known(granted - 1));
    for forged in [i64::MIN, -1, 0, i64::MAX] {
        assert!(!known(forged), "{forged}");
    }
}

proptest! {
    #[test]
    fn an_epoch_counts_as_committed_when_it_was_and_is_not_too_old(
        steps in proptest::collection::vec((1_i64..=70, any::<bool>()), 1..200),
    ) {
        // rule 1.7: each epoch is committed or not, and all of them are checked against the row.
        let (mut settled, mut committed) = (Settled::default(), BTreeSet::new());
        let mut epoch = 0;
        for (by, commits) in steps {
            epoch += by;
            if commits {
                settle(&mut settled, Epoch(epoch));
                committed.insert(epoch);
            }
            let last = settled.last.0;
            for checked in (epoch - 200).max(1)..=epoch + 2 {
                let expected = committed.contains(&checked) && checked >= last - REMEMBERED;
                prop_assert_eq!(is_settled(settled, Epoch(checked)), expected, "{} of {}", checked, last);
            }
        }
    }
}
