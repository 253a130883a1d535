//! The operations that are counted: one after the other, on a store whose content and clock are always the same.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use abide_kernel::memory::Memory;
use abide_kernel::model::{
    Claim, Claimed, Commit, Committed, InstanceId, Json, Lane, Limits, Name, NewCommand, Outcome,
    Start, Started, Timestamp, Wait, WorkerId,
};
use abide_kernel::{Answer, ClaimRequest, ManualClock, NewWorker, Op, Store};

/// The function inside which instructions are counted.
pub const MEASURED: &str = concat!(module_path!(), "::one_measured_transaction");

/// The number of entries of a transaction: one shows what a transaction costs by itself, many show what an entry costs.
const ENTRIES: [usize; 2] = [1, 64];

/// Instances that are in the store beforehand and stay as they are.
const OTHERS: usize = 1_000;

/// Runs the operations, and passes the name of each and the number of its entries to `label`. Each runs once uncounted
/// before, because a first call also initialises.
pub fn run(mut label: impl FnMut(&'static str, usize)) -> Result<(), String> {
    let lab = Lab::new()?;
    for entries in ENTRIES {
        lab.life(entries, Lab::uncounted, &mut |_, _| {})?;
    }
    for entries in ENTRIES {
        lab.life(entries, one_measured_transaction, &mut label)?;
    }
    Ok(())
}

/// Runs an operation in one transaction.
type Transact = fn(&Memory, Arc<[Op]>) -> Result<Answer, String>;

/// The store, and a worker that claims from it.
struct Lab {
    store: Memory,
    worker: WorkerId,
    queue: Name,
    lane: Lane,
}

impl Lab {
    fn new() -> Result<Self, String> {
        let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
        let store = Memory::new(Arc::new(clock), Limits::default());
        let (queue, other) = (name("default")?, name("other")?);
        let lane = Lane {
            machine: name("order")?,
            version: 1,
        };
        let mut waiting = start(&lane)?;
        waiting.queue = Some(other);
        transact(&store, [Op::Start(vec![waiting; OTHERS])].into())?;
        let worker = NewWorker {
            name: name("worker")?,
            lease: Duration::from_secs(3600),
            queues: vec![queue.clone()],
            lanes: vec![lane.clone()],
            build: None,
        };
        let worker = match transact(&store, [Op::Register(worker)].into())? {
            Answer::Registered(worker) => worker.id,
            other => return unexpected(&other),
        };
        Ok(Self {
            store,
            worker,
            queue,
            lane,
        })
    }

    fn uncounted(store: &Memory, ops: Arc<[Op]>) -> Result<Answer, String> {
        transact(store, ops)
    }

    /// Takes so many instances from their start to their end, each operation for all of them in one transaction.
    fn life(
        &self,
        entries: usize,
        transact: Transact,
        label: &mut impl FnMut(&'static str, usize),
    ) -> Result<(), String> {
        let mut run = |operation, op: Op| {
            label(operation, entries);
            let ops: Arc<[Op]> = [op].into();
            // The operations are dropped after they were counted.
            let kept = ops.clone();
            let answer = transact(&self.store, ops);
            drop(kept);
            answer
        };
        let (go, note) = (name("go")?, name("note")?);
        let started = run("start", Op::Start(vec![start(&self.lane)?; entries]))?;
        let ids = ids(started, entries)?;
        let claims = claims(run("claim", self.claim(entries))?, entries)?;
        let next = || -> Result<Outcome, String> {
            Ok(Outcome::Next {
                step: name("charge")?,
                state: state()?,
                delay_ms: 0,
            })
        };
        let advanced = run("advance", commit(claims, true, next)?)?;
        let claims = kept(advanced, entries)?;
        run("deliver", deliver(&ids, &note))?;
        let wait = || -> Result<Outcome, String> {
            Ok(Outcome::Wait(Wait {
                signals: vec![go.clone()],
                events: Vec::new(),
                timeout_ms: None,
                next: name("ship")?,
                state: state()?,
            }))
        };
        run("park", commit(claims, false, wait)?)?;
        run("wake", deliver(&ids, &go))?;
        let woken = claims_of(run("claim_woken", self.claim(entries))?, entries)?;
        if let Some(one) = woken.iter().find(|one| one.inbox.signals != 2) {
            return unexpected(one);
        }
        let done = || -> Result<Outcome, String> { Ok(Outcome::Done { result: state()? }) };
        let woken = woken.into_iter().map(|one| one.claim).collect();
        match run("finish", commit(woken, false, done)?)? {
            Answer::Committed(each)
                if each.iter().all(|one| matches!(one, Committed::Moved(_))) =>
            {
                Ok(())
            }
            other => unexpected(&other),
        }
    }

    fn claim(&self, limit: usize) -> Op {
        Op::Claim(ClaimRequest {
            worker: self.worker,
            queue: self.queue.clone(),
            lanes: vec![self.lane.clone()],
            limit,
            lease: None,
        })
    }
}

/// Runs an operation in one transaction. Valgrind counts inside this function, which it finds by its name.
#[inline(never)]
fn one_measured_transaction(store: &Memory, ops: Arc<[Op]>) -> Result<Answer, String> {
    transact(store, ops)
}

/// Runs an operation in one transaction. The memory store never waits.
fn transact(store: &Memory, ops: Arc<[Op]>) -> Result<Answer, String> {
    let mut run = store.run(ops);
    match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(mut answers)) => answers.pop().ok_or_else(|| "no answer".to_owned()),
        Poll::Ready(Err(error)) => Err(error.to_string()),
        Poll::Pending => Err("the memory store has waited".to_owned()),
    }
}

fn start(lane: &Lane) -> Result<Start, String> {
    Ok(Start::of(lane.machine.clone(), state()?))
}

fn state() -> Result<Json, String> {
    let text = r#"{"order":42,"customer":"c-17","items":[1,2,3]}"#;
    Json::parse(text.to_owned()).map_err(|error| error.to_string())
}

fn name(text: &str) -> Result<Name, String> {
    Name::new(text).map_err(|error| error.to_string())
}

fn deliver(ids: &[InstanceId], name: &Name) -> Op {
    let signals = ids.iter().map(|id| NewCommand::signal(*id, name.clone()));
    Op::Deliver(signals.collect())
}

fn commit(
    claims: Vec<Claim>,
    keep: bool,
    outcome: impl Fn() -> Result<Outcome, String>,
) -> Result<Op, String> {
    let commits = claims.into_iter().map(|claim| {
        Ok(Commit {
            claim,
            outcome: outcome()?,
            keep,
            took: Duration::from_millis(1),
            error: None,
        })
    });
    Ok(Op::Commit {
        commits: commits.collect::<Result<_, String>>()?,
        serves: Vec::new(),
    })
}

fn ids(answer: Answer, entries: usize) -> Result<Vec<InstanceId>, String> {
    let Answer::Started(each) = &answer else {
        return unexpected(&answer);
    };
    let ids = each.iter().filter_map(|one| match one {
        Ok(Started::New(id)) => Some(*id),
        _ => None,
    });
    let ids: Vec<InstanceId> = ids.collect();
    match ids.len() == entries {
        true => Ok(ids),
        false => unexpected(&answer),
    }
}

fn claims_of(answer: Answer, entries: usize) -> Result<Vec<Claimed>, String> {
    match answer {
        Answer::Claimed(each) if each.len() == entries => Ok(each),
        other => unexpected(&other),
    }
}

fn claims(answer: Answer, entries: usize) -> Result<Vec<Claim>, String> {
    let claimed = claims_of(answer, entries)?.into_iter();
    Ok(claimed.map(|one| one.claim).collect())
}

fn kept(answer: Answer, entries: usize) -> Result<Vec<Claim>, String> {
    let Answer::Committed(each) = answer else {
        return unexpected(&answer);
    };
    let kept = each.into_iter().filter_map(|one| match one {
        Committed::Kept(claim, _) => Some(claim),
        _ => None,
    });
    let kept: Vec<Claim> = kept.collect();
    match kept.len() == entries {
        true => Ok(kept),
        false => Err(format!("{} of {entries} claims were kept", kept.len())),
    }
}

fn unexpected<T>(answer: &impl std::fmt::Debug) -> Result<T, String> {
    Err(format!("unexpected answer: {answer:?}"))
}
