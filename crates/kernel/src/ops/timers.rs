//! Makes due instances runnable, and takes back expired claims.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_core::model::{Claim, Commit, InstanceId, Outcome, ParentRef, Row};
use abide_core::rules::deaths::Case;
use abide_core::rules::timers::{self, Lapse};

use super::commit::{commit, policies_of};
use super::skip_locked::Free;
use super::workers::fail_dead;
use crate::run::Turn;
use crate::{Answer, Lapsed, Loads, Result, Touched, Txn};

/// Makes due instances runnable: scheduled ones, and those whose wait has reached its deadline (rules 6.5, 7.5, 10.3).
/// Also takes back claims whose own lease has expired (rules 5.3, 5.4). Expired claims go first: there are never more
/// of them than workers hold, and the number of due instances is unlimited.
pub(crate) async fn fire<T: Txn>(turn: &mut Turn<'_, T>, limit: usize) -> Result<Answer> {
    let mut caught = Caught::default();
    caught.lapsed(turn, limit).await?;
    caught.due(turn, limit).await?;
    let more = caught.count() >= limit;
    let Caught {
        free: Free { mut ledger, .. },
        due,
        lapsed,
        locked,
    } = caught;
    let mut count = 0;
    for touched in &due {
        let Some(account) = ledger.get(touched.id) else {
            continue;
        };
        if let Some(fired) = timers::fire(&mut account.row, turn.now) {
            account.history_events.extend(fired.history_event);
            count += 1;
        }
    }
    let (mut late, mut failing) = (Vec::new(), Vec::new());
    let ids: Vec<InstanceId> = lapsed.iter().map(|one| one.touched.id).collect();
    let policies = match ids.is_empty() {
        true => BTreeMap::new(),
        false => policies_of(turn, &ids).await?,
    };
    for (position, one) in lapsed.iter().enumerate() {
        let Some(account) = ledger.get(one.touched.id) else {
            continue;
        };
        let case = Case::new(policies.get(&one.touched.id), position);
        match timers::lapse(&mut account.row, &one.worker, case, turn.now) {
            Some(Lapse::Reclaimed(back)) => {
                account.history_events.push(back.history_event);
                failing.extend(back.fails.map(|error| (one.touched.id, error)));
            }
            Some(Lapse::PastLimit) => late.extend(claim(&account.row, one.parent.clone())),
            None => continue,
        }
        count += 1;
    }
    fail_dead(turn, &mut ledger, failing).await?;
    ledger.write(turn).await?;
    fail(turn, late).await?;
    let next = match locked {
        0 => None,
        _ => turn.txn.due_after(turn.now).await?,
    };
    Ok(Answer::Fired {
        count,
        more,
        locked,
        next,
    })
}

/// Due or expired instances that no other transaction has locked.
#[derive(Default)]
struct Caught<'a> {
    free: Free<'a>,
    due: Vec<Touched>,
    lapsed: Vec<Lapsed>,
    /// The number of skipped instances.
    locked: usize,
}

impl Caught<'_> {
    fn count(&self) -> usize {
        self.due.len() + self.lapsed.len()
    }

    /// Locks instances whose lease has expired, with the parents that may have to be notified.
    async fn lapsed<T: Txn>(&mut self, turn: &mut Turn<'_, T>, limit: usize) -> Result<()> {
        let mut examined = 0;
        while self.count() < limit {
            let room = turn.room(limit);
            let page = turn.txn.lapsed(turn.now, examined, room).await?;
            examined += page.len();
            let is_last = page.len() < room;
            let page = turn.choose(page, |one| one.touched.id, limit);
            let is_last = is_last || page.is_empty();
            let parent = |one: &Lapsed| {
                one.parent.clone().map(|parent| Touched {
                    id: parent.id,
                    partition: parent.partition,
                })
            };
            let families = page
                .iter()
                .map(|one| [Some(one.touched.clone()), parent(one)]);
            let families: Vec<Vec<Touched>> = families
                .map(|family| family.into_iter().flatten().collect())
                .collect();
            let free = self.free.lock(turn, &families).await?;
            for (one, free) in page.into_iter().zip(free) {
                match free {
                    true => self.lapsed.push(one),
                    false => self.locked += 1,
                }
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Locks due instances.
    async fn due<T: Txn>(&mut self, turn: &mut Turn<'_, T>, limit: usize) -> Result<()> {
        let mut examined = 0;
        while self.count() < limit {
            let left = match examined {
                0 => limit - self.count(),
                _ => limit,
            };
            let room = turn.room(left);
            let page = turn.txn.due(turn.now, examined, room).await?;
            examined += page.len();
            let is_last = page.len() < room;
            let page = turn.choose(page, |one| one.id, left);
            let is_last = is_last || page.is_empty();
            let alone: Vec<Vec<Touched>> = page.iter().map(|one| vec![one.clone()]).collect();
            let free = self.free.lock(turn, &alone).await?;
            for (one, free) in page.into_iter().zip(free) {
                match free {
                    true => self.due.push(one),
                    false => self.locked += 1,
                }
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the claim under which a row is held now. It names the row's parent, even if that was deleted and not found.
fn claim(row: &Row, parent: Option<ParentRef>) -> Option<Claim> {
    let partition = row.partition_key.clone();
    let worker = row.worker?;
    let gone = |id| ParentRef {
        id,
        partition: None,
    };
    let parent = parent.or_else(|| row.parent.map(gone));
    Some(Claim::granted(row.id, row.epoch, worker, partition, parent))
}

/// Fails the steps that have passed their time limit (rule 5.4), as their workers would have done. The claims of those
/// workers are stale from now on.
async fn fail<T: Txn>(turn: &mut Turn<'_, T>, late: Vec<Claim>) -> Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    let ids: Vec<InstanceId> = late.iter().map(Claim::id).collect();
    let policies = policies_of(turn, &ids).await?;
    let failure = |claim: Claim| {
        let policy = policies.get(&claim.id());
        let limit = policy.and_then(|policy| policy.step_timeout_ms);
        Commit {
            claim,
            outcome: Outcome::Fail {
                error: timers::over_limit(limit),
            },
            keep: false,
            took: Duration::from_millis(limit.unwrap_or_default()),
            error: None,
        }
    };
    let commits: Vec<Commit> = late.into_iter().map(failure).collect();
    commit(turn, &commits, &[]).await?;
    Ok(())
}
