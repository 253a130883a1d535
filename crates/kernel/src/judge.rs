//! Validates commands outside a transaction when that takes longer than a transaction may wait (rule 8.5).
//!
//! Inside a transaction a validation gets few steps (`Bench`). A command that needs more is left unjudged: nothing is
//! written for it, and other commands continue. Its sender validates it on a blocking thread and sends it again. A
//! contract's id is derived from its content, so a verdict depends only on the contract and the command, whatever
//! happened to the run meanwhile. A run with another contract leaves the command unjudged again. All transactions of
//! the process can use a verdict while something holds it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use abide_core::model::{ContractId, Json, NewCommand, Refusal};
use abide_core::rules::contract::{Steps, Terms, Unfit};
use abide_core::rules::deliver;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use crate::committer::{Deliveries, Folded};
use crate::{Answer, Error, Op, Result, Store, terms};

/// The steps that every command may use inside a transaction: they take as long as the rest of its work.
const STEPS_ALWAYS: u64 = 2_000;
/// The maximum number of steps of one command inside a transaction: a few milliseconds at worst.
const STEPS_INSIDE: u64 = 1_000_000;
/// The maximum number of steps of all commands of a transaction, besides those that each may always use.
const STEPS_TOGETHER: u64 = 4_000_000;
/// The maximum number of steps of one command in a transaction of the host, where nothing can be retried.
const STEPS_LENT: u64 = 20_000_000;
/// The number of parallel validations, and how long one waits for its turn.
const THREADS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum number of rounds of judging and sending again. The second is enough unless the target changes all the
/// time.
const ROUNDS: usize = 5;

/// The budget for validations in one transaction.
pub(crate) struct Bench {
    together: u64,
    lent: bool,
    /// `true` if an unjudged entry must abort the whole transaction, because the answer to a request that may arrive
    /// more than once is stored.
    pub all_or_nothing: bool,
}

impl Bench {
    /// Creates the budget of a transaction that others wait for.
    pub fn shared() -> Self {
        Self {
            together: STEPS_TOGETHER,
            lent: false,
            all_or_nothing: false,
        }
    }

    /// Creates the budget of a transaction of the host.
    pub fn lent() -> Self {
        Self {
            together: 0,
            lent: true,
            all_or_nothing: false,
        }
    }

    /// Returns the answer for a command that must be judged outside.
    pub fn unjudged<T>(
        &self,
        delivery: &NewCommand,
        contract: ContractId,
    ) -> Result<std::result::Result<T, Refusal>> {
        match self.all_or_nothing {
            true => Err(Error::Unjudged(vec![(contract, delivery.clone())].into())),
            false => Ok(Err(Refusal::Unjudged { contract })),
        }
    }

    /// Returns the contract's verdict on a command; `None` if it must be found outside.
    pub fn judge(
        &mut self,
        delivery: &NewCommand,
        contract: ContractId,
        terms: Option<&Terms>,
    ) -> Option<Judged> {
        if self.lent {
            return Some(deliver::judge(delivery, terms, &mut Steps::new(STEPS_LENT)));
        }
        let most = STEPS_INSIDE.min(self.together).max(STEPS_ALWAYS);
        let mut steps = Steps::new(most);
        let judged = deliver::judge(delivery, terms, &mut steps);
        let taken = most - steps.left();
        self.together = self
            .together
            .saturating_sub(taken.saturating_sub(STEPS_ALWAYS));
        match judged {
            Err(Unfit::TooLong { .. }) => known(contract, delivery),
            judged => Some(judged),
        }
    }
}

/// The arguments in the form in which they are stored, or the reason why they are refused.
type Judged = std::result::Result<Json, Unfit>;

/// Commands that a transaction had no time to validate, each with its contract.
#[derive(Clone, Debug)]
pub struct Unjudged(Arc<[(ContractId, NewCommand)]>);

impl From<Vec<(ContractId, NewCommand)>> for Unjudged {
    fn from(cases: Vec<(ContractId, NewCommand)>) -> Self {
        Self(cases.into())
    }
}

/// The subject of a verdict: a contract, and a hash of all parts of a command that the contract covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Case(ContractId, [u8; 32]);

impl Case {
    fn of(contract: ContractId, delivery: &NewCommand) -> Self {
        let content = (delivery.kind, &delivery.name, &delivery.arguments);
        // Serializing names and existing JSON cannot fail.
        let content = serde_json::to_vec(&content).unwrap_or_default();
        Self(contract, Sha256::digest(content).into())
    }
}

/// A verdict on a command. While it is held, every transaction of this process can use it.
pub(crate) struct Verdict {
    case: Case,
    judged: Judged,
}

static VERDICTS: LazyLock<Mutex<HashMap<Case, Weak<Verdict>>>> = LazyLock::new(Mutex::default);
static PERMITS: Semaphore = Semaphore::const_new(THREADS);
/// One permit per contract, so that the commands of one contract do not take all permits.
static TURNS: LazyLock<Mutex<HashMap<ContractId, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

fn locked<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the known verdict on a command. Computes a hash of the command only if there are any verdicts.
fn known(contract: ContractId, delivery: &NewCommand) -> Option<Judged> {
    if locked(&VERDICTS).is_empty() {
        return None;
    }
    let case = Case::of(contract, delivery);
    let verdict = locked(&VERDICTS).get(&case).and_then(Weak::upgrade)?;
    Some(verdict.judged.clone())
}

impl Drop for Verdict {
    fn drop(&mut self) {
        let mut verdicts = locked(&VERDICTS);
        // Another task may have stored a verdict on the same case meanwhile.
        let is_gone = |verdict: &Weak<Verdict>| verdict.strong_count() == 0;
        if verdicts.get(&self.case).is_some_and(is_gone) {
            verdicts.remove(&self.case);
        }
    }
}

/// Validates a command on a blocking thread, within the step limit of a validation. Returns `None` if no permit became
/// free in time.
pub(crate) async fn decide(contract: ContractId, delivery: NewCommand) -> Option<Arc<Verdict>> {
    let turn = turn_of(contract);
    let permits = async {
        let turn = turn.acquire().await.ok()?;
        let permit = PERMITS.acquire().await.ok()?;
        Some((turn, permit))
    };
    let _permits = tokio::time::timeout(PATIENCE, permits).await.ok()??;
    // The transaction that left the command unjudged has just used the contract.
    let terms = terms::known(contract)?;
    let find = move || {
        let judged = deliver::judge(&delivery, Some(&terms), &mut Steps::default());
        let case = Case::of(contract, &delivery);
        let verdict = Arc::new(Verdict { case, judged });
        locked(&VERDICTS).insert(case, Arc::downgrade(&verdict));
        verdict
    };
    tokio::task::spawn_blocking(find).await.ok()
}

fn turn_of(contract: ContractId) -> Arc<Semaphore> {
    let mut turns = locked(&TURNS);
    if let Some(turn) = turns.get(&contract).and_then(Weak::upgrade) {
        return turn;
    }
    turns.retain(|_, turn| turn.strong_count() > 0);
    let turn = Arc::new(Semaphore::new(1));
    turns.insert(contract, Arc::downgrade(&turn));
    turn
}

/// Tries a transaction, and retries it if held signals for the instances that it starts must be judged outside.
pub async fn with_held<F>(mut attempt: impl FnMut() -> F) -> Result<Vec<Answer>>
where
    F: Future<Output = Result<Vec<Answer>>>,
{
    let mut verdicts = Vec::new();
    for _ in 1..ROUNDS {
        let Unjudged(cases) = match attempt().await {
            Err(Error::Unjudged(cases)) => cases,
            answers => return answers,
        };
        for (contract, delivery) in cases.iter() {
            verdicts.extend(decide(*contract, delivery.clone()).await);
        }
    }
    match attempt().await {
        Err(error @ Error::Unjudged(_)) => Err(Error::Conflict(error.to_string())),
        answers => answers,
    }
}

/// Judges the unjudged commands of a request and sends them again, together and in order, until each is answered or no
/// permit was free in time.
pub(crate) async fn settle<K: Folded, F>(
    items: &[K::Item],
    answers: &mut [K::Each],
    mut send: impl FnMut(Vec<K::Item>) -> F,
) -> Result<()>
where
    F: Future<Output = Result<Vec<K::Each>>>,
{
    let mut verdicts = Vec::new();
    for _ in 1..ROUNDS {
        let cases = answers.iter().zip(items).enumerate();
        let cases: Vec<(usize, &K::Item, ContractId, &NewCommand)> = cases
            .filter_map(|(at, (answer, item))| {
                let (contract, delivery) = K::unjudged(item, answer)?;
                Some((at, item, contract, delivery))
            })
            .collect();
        let before = verdicts.len();
        for (_, _, contract, delivery) in &cases {
            verdicts.extend(decide(*contract, (*delivery).clone()).await);
        }
        if verdicts.len() == before {
            break;
        }
        let positions: Vec<usize> = cases.iter().map(|(at, ..)| *at).collect();
        let once_more = cases.iter().map(|(_, item, ..)| K::again(item)).collect();
        for (at, answer) in positions.into_iter().zip(send(once_more).await?) {
            if let Some(slot) = answers.get_mut(at) {
                *slot = answer;
            }
        }
    }
    Ok(())
}

/// Runs operations in one transaction, and commands that must be judged outside in another.
///
/// Errors: as for [`Store::run`]. A command that could not be judged in time is refused as
/// [`Unjudged`](abide_core::model::Refusal::Unjudged), and nothing was written for it.
pub async fn run(store: &dyn Store, ops: Arc<[Op]>) -> Result<Vec<Answer>> {
    let mut answers = store.run(ops.clone()).await?;
    for (op, answer) in ops.iter().zip(&mut answers) {
        if let (Op::Deliver(sent), Answer::Delivered(each)) = (op, answer) {
            let send = |left| async move {
                let answer = store.run([Op::Deliver(left)].into()).await?.pop();
                Ok(answer.and_then(Deliveries::answers).unwrap_or_default())
            };
            settle::<Deliveries, _>(sent, each, send).await?;
        }
    }
    Ok(answers)
}
