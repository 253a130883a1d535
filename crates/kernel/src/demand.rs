//! `Demand`: when a queue is asked for work. The slots of an engine and the long polls that wait at a server share it.

use abide_core::model::Name;

use crate::Effects;

/// Decides when to claim from a queue: only if there may be work that was not claimed yet. So a queue that is empty
/// costs nothing, however many consumers wait for it (rule 6.6).
///
/// The consumers are its owner's: an engine has slots, and a server has long polls. The owner begins a claim if it has
/// a consumer and [may find work](Self::is_hungry), for as many consumers as it likes, and reports the result.
///
/// | event | hungry afterwards | plenty afterwards |
/// |---|---|---|
/// | it is created | yes | no |
/// | [wake](Self::wake): a notification, or the interval that backs up lost ones | yes | as before |
/// | [begin](Self::begin): a claim begins | if there was plenty: two claims at a time are then worthwhile | as before |
/// | [end](Self::end): it returned all that it asked for | yes | yes |
/// | [end](Self::end): it returned less | if a wake arrived after it began | no |
/// | [fail](Self::fail): nothing was claimed | yes | as before |
/// | [clear](Self::clear): the owner has no code for the work | no | as before |
///
/// ```
/// use abide_kernel::Demand;
///
/// let mut demand = Demand::default();
/// let claim = demand.begin();
/// assert!(!demand.is_hungry());
/// demand.wake(); // work arrives that the claim may have missed
/// demand.end(claim, false);
/// assert!(demand.is_hungry());
/// let claim = demand.begin();
/// demand.end(claim, false);
/// assert!(!demand.is_hungry());
/// ```
#[derive(Debug)]
pub struct Demand {
    hungry: bool,
    plenty: bool,
    /// The number of wakes. It shows if one arrived while a claim was in progress.
    wakes: u64,
}

/// A claim in progress.
#[derive(Debug)]
pub struct Begun {
    /// The number of wakes when it began.
    wakes: u64,
}

impl Demand {
    /// `true` if there may be work that was not claimed.
    pub const fn is_hungry(&self) -> bool {
        self.hungry
    }

    /// Records that there may be work.
    pub const fn wake(&mut self) {
        self.hungry = true;
        self.wakes += 1;
    }

    /// Records that nothing can be claimed until the next wake.
    pub const fn clear(&mut self) {
        self.hungry = false;
    }

    /// Begins a claim.
    pub const fn begin(&mut self) -> Begun {
        self.hungry = self.plenty;
        Begun { wakes: self.wakes }
    }

    /// Ends a claim. `all` says whether it returned all that it asked for.
    pub const fn end(&mut self, claim: Begun, all: bool) {
        self.plenty = all;
        self.hungry = all || self.wakes > claim.wakes;
    }

    /// Records that a claim has failed.
    pub const fn fail(&mut self) {
        self.hungry = true;
    }
}

impl Default for Demand {
    /// The demand of a queue about which nothing is known.
    fn default() -> Self {
        Self {
            hungry: true,
            plenty: false,
            wakes: 0,
        }
    }
}

impl Effects {
    /// `true` if the queue may have new runnable instances.
    pub fn wakes(&self, queue: &Name) -> bool {
        self.anything || self.ready.contains(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_queue_is_not_asked_again_before_a_wake() {
        // rule 6.6
        let mut demand = Demand::default();
        let claim = demand.begin();
        demand.end(claim, false);
        assert!(!demand.is_hungry());
        demand.wake();
        assert!(demand.is_hungry());
        demand.clear();
        assert!(!demand.is_hungry());
    }

    #[test]
    fn a_wake_during_a_claim_is_not_lost() {
        // rule 6.6
        let mut demand = Demand::default();
        demand.wake();
        let claim = demand.begin();
        assert!(!demand.is_hungry());
        demand.wake();
        demand.end(claim, false);
        assert!(demand.is_hungry());
        let claim = demand.begin();
        demand.end(claim, false);
        assert!(!demand.is_hungry(), "it was found empty after the wake");
    }

    #[test]
    fn a_queue_with_plenty_may_be_asked_twice_at_a_time() {
        // rule 6.6
        let mut demand = Demand::default();
        let first = demand.begin();
        demand.end(first, true);
        assert!(demand.is_hungry());
        let (first, second) = (demand.begin(), demand.begin());
        assert!(demand.is_hungry());
        demand.end(first, false);
        assert!(!demand.is_hungry());
        demand.end(second, true);
        assert!(demand.is_hungry());
    }

    #[test]
    fn a_claim_that_failed_is_made_again() {
        // rule 6.6
        let mut demand = Demand::default();
        let _failed = demand.begin();
        demand.fail();
        assert!(demand.is_hungry());
    }
}
