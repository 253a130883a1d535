//! The committer on a store with faults: which callers a failure touches, how often each is tried, and the answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_kernel::committer::{
    Bulk, Commits, Committer, Entry, Failed, Intake, Starts, Submit, Waiter,
};
use abide_kernel::conformance::faulty::{Faulty, Trouble};
use abide_kernel::memory::Memory;
use abide_kernel::model::{
    Claim, Commit, Committed, Epoch, InstanceId, Json, Lane, Limits, Name, Outcome, Start, Status,
    Timestamp, When, WorkerId,
};
use abide_kernel::{Answer, ClaimRequest, Error, Filter, ManualClock, NewWorker, Op, Store};
use futures_util::future::join_all;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A store in memory, and a log of its transactions.
struct Lab {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    log: Arc<Mutex<Vec<Vec<InstanceId>>>>,
}

impl Lab {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(
            1_767_225_600_000_000,
        )));
        Self {
            store: Arc::new(Memory::new(clock.clone(), Limits::default())),
            clock,
            log: Arc::default(),
        }
    }

    /// The committer on a store with faults: the plan chooses them by the instances that a transaction commits, and by
    /// the number of transactions before it.
    fn troubled(
        &self,
        plan: impl Fn(&[InstanceId], usize) -> Option<Trouble> + Send + Sync + 'static,
    ) -> Committer {
        let log = self.log.clone();
        Committer::new(Faulty::new(self.store.clone(), move |ops| {
            let ids: Vec<InstanceId> = ops.iter().flat_map(committed).collect();
            let mut log = log.lock().unwrap();
            let before = log.len();
            log.push(ids.clone());
            plan(&ids, before)
        }))
    }

    /// The instances of each transaction.
    fn transactions(&self) -> Vec<Vec<InstanceId>> {
        self.log.lock().unwrap().clone()
    }

    async fn run(&self, op: Op) -> Answer {
        self.store.run(Arc::new([op])).await.unwrap().remove(0)
    }

    /// Claims on so many new instances.
    async fn held(&self, count: usize) -> Vec<Claim> {
        let lane = Lane {
            machine: name("m"),
            version: 1,
        };
        self.run(Op::Start(vec![start(); count])).await;
        let worker = NewWorker {
            name: name("w"),
            lease: 3600 * SECOND,
            queues: vec![name("default")],
            lanes: vec![lane.clone()],
            build: None,
        };
        let Answer::Registered(worker) = self.run(Op::Enlist(worker)).await else {
            panic!("a worker is made known")
        };
        let request = ClaimRequest {
            worker: worker.id,
            queue: name("default"),
            lanes: vec![lane],
            limit: count,
            lease: Some(3600 * SECOND),
        };
        match self.run(Op::Claim(request)).await {
            Answer::Claimed(claimed) if claimed.len() == count => {
                claimed.into_iter().map(|one| one.claim).collect()
            }
            other => panic!("{count} were to be claimed: {other:?}"),
        }
    }

    async fn count(&self) -> usize {
        let all = Filter::default();
        self.store.list(&all, None, 99).await.unwrap().items.len()
    }
}

fn committed(op: &Op) -> Vec<InstanceId> {
    match op {
        Op::Commit { commits, .. } => commits.iter().map(|one| one.claim.id()).collect(),
        _ => Vec::new(),
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn start() -> Start {
    Start::of(name("m"), Json::null())
}

fn commit(claim: &Claim, outcome: Outcome) -> Commit {
    Commit {
        claim: claim.again(),
        outcome,
        keep: false,
        took: Duration::ZERO,
        error: None,
    }
}

fn ends(claim: &Claim) -> Commit {
    commit(
        claim,
        Outcome::Done {
            result: Json::null(),
        },
    )
}

fn goes_on(claim: &Claim) -> Commit {
    let outcome = Outcome::Next {
        step: name("next"),
        state: Json::null(),
        delay_ms: 0,
    };
    commit(claim, outcome)
}

const DONE: Committed = Committed::Moved(Status::Done);
const ON: Committed = Committed::Moved(Status::Runnable);

#[tokio::test]
async fn callers_share_a_transaction_and_each_is_answered_for_its_own_items() {
    // rule 1.4
    let lab = Lab::new();
    let commits = Submit::<Commits>::begin(&lab.troubled(|_, _| None), SECOND);
    let claims = lab.held(4).await;
    let unknown = |id| Claim::granted(InstanceId(id), Epoch(1), WorkerId(1), None, None);
    let requests = [
        vec![ends(&claims[0]), goes_on(&claims[1])],
        vec![ends(&unknown(9_998))],
        vec![goes_on(&claims[2]), ends(&unknown(9_999)), ends(&claims[3])],
    ];
    let answers = join_all(requests.map(|items| commits.ask(items))).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers[0], [DONE, ON]);
    assert_eq!(answers[1], [Committed::Stale]);
    assert_eq!(answers[2], [ON, Committed::Stale, DONE]);
    assert_eq!(lab.transactions().len(), 1);
}

#[tokio::test]
async fn a_batch_that_fails_is_separated_and_only_the_entry_at_fault_is_refused() {
    // rules 1.4 and 4.2, also between the outcomes of one request
    let lab = Lab::new();
    let claims = lab.held(6).await;
    let bad = claims[3].id();
    let committer = lab.troubled(move |ids, _| ids.contains(&bad).then_some(Trouble::Broken));
    let commits = Submit::<Commits>::begin(&committer, SECOND);
    let requests = [&claims[..1], &claims[1..3], &claims[3..]];
    let requests = requests.map(|own| commits.ask(own.iter().map(ends).collect()));
    let answers = join_all(requests).await;
    let answers: Vec<_> = answers.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(answers.len(), 6);
    for (at, answer) in answers.into_iter().enumerate() {
        match answer {
            Committed::Refused(_) => assert_eq!(at, 3),
            answer => assert_eq!((at, answer), (at, DONE)),
        }
        let of_it = |ids: &&Vec<InstanceId>| ids.contains(&claims[at].id());
        let tries = lab.transactions().iter().filter(of_it).count();
        assert_eq!(tries, 2, "once together and once alone");
    }
}

#[tokio::test]
async fn an_entry_that_has_failed_alone_goes_alone_until_it_is_committed() {
    // rule 1.4: others pay for it once, not each time.
    let lab = Lab::new();
    let claims = lab.held(4).await;
    let bad = claims[0].id();
    let lifted = Arc::new(Mutex::new(false));
    let is_lifted = lifted.clone();
    let committer = lab.troubled(move |ids, _| {
        let fails = ids.contains(&bad) && !*is_lifted.lock().unwrap();
        fails.then_some(Trouble::Broken)
    });
    let commits = Submit::<Commits>::begin(&committer, SECOND);
    let both = async |one: Commit, two: Commit| {
        let before = lab.transactions().len();
        let (one, two) = tokio::join!(commits.ask_one(one), commits.ask_one(two));
        let shared = lab.transactions()[before..].iter().any(|ids| ids.len() > 1);
        (one.unwrap(), two.unwrap(), shared)
    };
    let (first, other, shared) = both(goes_on(&claims[0]), ends(&claims[1])).await;
    assert!(matches!(first, Committed::Refused(_)), "{first:?}");
    assert_eq!((other, shared), (DONE, true));
    let (second, other, shared) = both(goes_on(&claims[0]), ends(&claims[2])).await;
    assert!(matches!(second, Committed::Refused(_)), "{second:?}");
    assert_eq!((other, shared), (DONE, false), "it is suspected");
    *lifted.lock().unwrap() = true;
    let third = commits.ask_one(goes_on(&claims[0])).await.unwrap();
    assert_eq!(third, ON);
    // Asked again by its epoch.
    let (again, other, shared) = both(goes_on(&claims[0]), ends(&claims[3])).await;
    assert_eq!(again, Committed::Repeated(Status::Runnable), "rule 1.7");
    assert_eq!((other, shared), (DONE, true), "it is suspected no more");
}

#[tokio::test]
async fn a_conflict_is_tried_again_for_as_long_as_its_caller_waits() {
    // rule 1.4
    let lab = Lab::new();
    let commits =
        Submit::<Commits>::begin(&lab.troubled(|_, _| Some(Trouble::Conflict)), SECOND / 4);
    let claim = lab.held(1).await.remove(0);
    let began = Instant::now();
    let answer = commits.ask_one(ends(&claim)).await;
    assert!(matches!(answer, Err(Error::Conflict(_))), "{answer:?}");
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    let tries = lab.transactions().len();
    assert!((3..=17).contains(&tries), "{tries}");
}

#[tokio::test]
async fn what_may_have_been_committed_is_asked_for_again_only_when_that_is_safe() {
    // rule 1.1
    let lab = Lab::new();
    // In its batch, and then alone.
    let twice = |_: &[InstanceId], before| (before < 2).then_some(Trouble::AnswerLost);
    let claim = lab.held(1).await.remove(0);
    let commits = Submit::<Commits>::begin(&lab.troubled(twice), SECOND);
    let answer = commits.ask_one(ends(&claim)).await.unwrap();
    assert_eq!(answer, Committed::Repeated(Status::Done), "rule 1.7");
    assert_eq!(lab.transactions().len(), 3);
    lab.log.lock().unwrap().clear();
    let starts = Submit::<Starts>::begin(&lab.troubled(twice), SECOND);
    let answer = starts.ask_one(start()).await;
    assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
    assert_eq!((lab.transactions().len(), lab.count().await), (1, 2));
}

#[tokio::test]
async fn a_later_failure_does_not_make_an_unknown_outcome_known() {
    // rule 1.1: "nothing was written" would be a lie.
    let lab = Lab::new();
    let claim = lab.held(1).await.remove(0);
    let committer = lab.troubled(|_, before| match before {
        0 => Some(Trouble::AnswerLost),
        _ => Some(Trouble::Away),
    });
    let commits = Submit::<Commits>::begin(&committer, SECOND / 4);
    let answer = commits.ask_one(ends(&claim)).await;
    assert!(matches!(answer, Err(Error::Unknown(_))), "{answer:?}");
    assert!(lab.transactions().len() > 1);
}

#[tokio::test]
async fn a_database_that_comes_back_is_sent_what_waited() {
    // rule 1.4
    let lab = Lab::new();
    let claims = lab.held(3).await;
    let away = |_: &[InstanceId], before| (before < 3).then_some(Trouble::Away);
    let commits = Submit::<Commits>::begin(&lab.troubled(away), 60 * SECOND);
    let answers = join_all(claims.iter().map(|claim| commits.ask_one(ends(claim)))).await;
    for answer in answers {
        assert_eq!(answer.unwrap(), DONE);
    }
    assert!(lab.transactions().len() <= 6, "{:?}", lab.transactions());
}

/// A caller of an intake that waits until then.
#[derive(Debug)]
struct Until(Option<Instant>);

impl Waiter for Until {
    fn until(&self) -> Option<Instant> {
        self.0
    }
}

#[tokio::test]
async fn while_the_database_is_away_nothing_is_tried_and_then_less_at_once_and_others_first() {
    // rule 1.4: one of them may be what drives it away.
    let lab = Lab::new();
    let committer = lab.troubled(|_, _| None);
    let mut intake: Intake<Commits, Until> = Intake::new(8);
    let claims = lab.held(12).await;
    for claim in &claims {
        let items = vec![ends(claim)];
        let waiter = Until(None);
        intake.push(Entry { items, waiter });
    }
    let ids = |entries: &[Entry<Commits, Until>]| -> Vec<InstanceId> {
        entries.iter().map(|one| one.items[0].claim.id()).collect()
    };
    let own: Vec<InstanceId> = claims.iter().map(Claim::id).collect();
    let mut expected = [own[..8].to_vec(), own[8..].to_vec(), own[..2].to_vec()].into_iter();
    let mut next = expected.next();
    while let Some(expected_now) = next {
        let taken = intake.take(&committer).together;
        assert_eq!(ids(&taken), expected_now);
        let failed = intake.failed(taken, Error::Unavailable("it is away".into()));
        assert!(matches!(failed, Failed::Kept), "{failed:?}");
        assert!(intake.take(&committer).together.is_empty(), "it rests");
        tokio::time::sleep_until(intake.resting().unwrap()).await;
        next = expected.next();
    }
    assert_eq!(intake.take(&committer).together.len(), 1);
    intake.landed();
    assert_eq!(intake.take(&committer).together.len(), 8);
}

#[tokio::test]
async fn whose_patience_is_over_is_answered_and_the_others_wait_on() {
    // rule 1.4
    let lab = Lab::new();
    let committer = lab.troubled(|_, _| None);
    let mut intake: Intake<Commits, Until> = Intake::new(8);
    let claims = lab.held(2).await;
    for (claim, until) in claims.iter().zip([Some(Instant::now()), None]) {
        let items = vec![ends(claim)];
        let waiter = Until(until);
        intake.push(Entry { items, waiter });
    }
    assert!(intake.spent(true).is_empty(), "the database is there");
    let taken = intake.take(&committer).together;
    intake.failed(taken, Error::Unavailable("it is away".into()));
    let spent = intake.spent(true);
    assert_eq!(spent.len(), 1);
    assert_eq!(spent[0].0.items[0].claim.id(), claims[0].id());
    assert!(matches!(spent[0].1, Error::Unavailable(_)));
    assert_eq!(intake.len(), 1);

    // When the rest is over, one without any patience is tried before it is answered that the database is away.
    tokio::time::sleep_until(intake.resting().unwrap()).await;
    let items = vec![ends(&claims[0])];
    let waiter = Until(Some(Instant::now()));
    intake.push(Entry { items, waiter });
    assert!(intake.spent(false).is_empty());
    assert_eq!(intake.spent(true).len(), 1, "but not while another is");
}

#[tokio::test]
async fn an_instance_that_cannot_be_fired_is_passed_over_and_the_others_are_fired() {
    // rule 1.4. The bug: one row made the transaction fail that fires timers, and no timer fired any more.
    let lab = Lab::new();
    let later = |delay| Start {
        when: When::After(delay),
        ..start()
    };
    let starts = (1..=20).map(|at| later(at * SECOND)).collect();
    let Answer::Started(started) = lab.run(Op::Start(starts)).await else {
        panic!("they start")
    };
    let bad = started[0].as_ref().unwrap().id();
    lab.clock.advance(60 * SECOND);
    let attempts = Arc::new(Mutex::new(0));
    let counted = attempts.clone();
    let store: Arc<dyn Store> = Faulty::new(lab.store.clone(), move |ops| {
        let mut attempts = counted.lock().unwrap();
        *attempts += 1;
        assert!(*attempts < 100, "it is tried for ever");
        let spared = |op: &Op| matches!(op, Op::PassOver { instances, name_only } if *name_only || instances.contains(&bad));
        (!ops.iter().any(spared)).then_some(Trouble::Conflict)
    });
    let mut bulk = Bulk::new(64);
    let mut fired = 0;
    loop {
        match bulk.run(&store, |limit| Op::Fire { limit }).await.unwrap() {
            Answer::Fired { count, more, .. } => {
                fired += count;
                if !more {
                    break;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(fired, 19);
    assert!(bulk.is_incomplete());
    let status = lab.store.get(&bad.into()).await.unwrap().unwrap().status;
    assert_eq!(status, Status::Scheduled);
    let attempts = *attempts.lock().unwrap();
    // With 64, with 8, alone, its name; then 1, 2, 4, 8 and the rest.
    assert!(attempts <= 10, "{attempts}");
}

fn ended(claim: &Claim, result: u32) -> Commit {
    let result = Json::of(&result).unwrap();
    commit(claim, Outcome::Done { result })
}

fn is_contradiction(answer: &Committed) -> bool {
    matches!(answer, Committed::Refused(refusal) if refusal.to_string().contains("two different outcomes"))
}

#[tokio::test]
async fn outcomes_of_two_callers_for_one_claim_are_two_requests() {
    // rule 1.7: the first is committed, and the other is a repetition, also when they come together.
    let lab = Lab::new();
    let claims = lab.held(2).await;
    let submit: Submit<Commits> = Submit::begin(&lab.troubled(|_, _| None), SECOND);
    let sent = [1, 2, 3].map(|result| submit.ask(vec![ended(&claims[0], result)]));
    let both = async { tokio::join!(join_all(sent), submit.ask(vec![ended(&claims[1], 4)])) };
    let (answers, beside) = both.await;
    let answers: Vec<Committed> = answers.into_iter().flat_map(Result::unwrap).collect();
    let (moved, repeated) = (
        Committed::Moved(Status::Done),
        Committed::Repeated(Status::Done),
    );
    assert_eq!(answers[0], moved);
    assert!(
        answers[1..].iter().all(|one| *one == repeated),
        "{answers:?}"
    );
    assert_eq!(beside.unwrap(), [Committed::Moved(Status::Done)]);
    // Those of one caller are one request.
    let claims = lab.held(1).await;
    let sent = vec![ended(&claims[0], 1), ended(&claims[0], 2)];
    let answers = submit.ask(sent).await.unwrap();
    assert!(answers.iter().all(is_contradiction), "{answers:?}");
}

#[tokio::test]
async fn contradicting_outcomes_stay_one_request_when_entries_are_separated() {
    // rules 1.4 and 1.7: the batch fails, and its entries go alone.
    let lab = Lab::new();
    let claims = lab.held(2).await;
    let plan = |_: &[InstanceId], before: usize| (before == 0).then_some(Trouble::Conflict);
    let submit: Submit<Commits> = Submit::begin(&lab.troubled(plan), 60 * SECOND);
    let sent = vec![
        ended(&claims[0], 1),
        ended(&claims[1], 3),
        ended(&claims[0], 2),
    ];
    let answers = submit.ask(sent).await.unwrap();
    assert!(
        is_contradiction(&answers[0]) && is_contradiction(&answers[2]),
        "{answers:?}"
    );
    assert_eq!(answers[1], Committed::Moved(Status::Done));
    let mut sizes: Vec<usize> = lab.transactions().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 3], "one claim each");
}
