//! Entries that fail by their own fault, whatever is tried: they touch no others, and are tried a bounded number of times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use abide::client::new_start;
use abide::time::{hours, millis, secs};
use abide::{Abide, InstanceId, Signal, Status, done};
use abide_kernel::committer::{Commits, Committer, Submit};
use abide_kernel::model::{Committed, Target};
use abide_kernel::{Error, Op};
use futures_util::future::join_all;
use serde_json::json;

use crate::common::{Faulty, Gate, Lab, Script, Trouble, eventually, soon};
use crate::outages::folded::{ends, held};

/// Instances of which the database will have nothing, and how often each instance was tried.
#[derive(Clone, Default)]
struct Poison {
    poisoned: Arc<Mutex<Vec<InstanceId>>>,
    attempts: Arc<Mutex<HashMap<InstanceId, Tries>>>,
    /// The number of failed transactions that others shared.
    spoiled: Arc<AtomicUsize>,
    /// `true` if they are the first to be fired, and the number of times that this failed.
    chosen: Arc<AtomicBool>,
    failed_choices: Arc<AtomicUsize>,
    lifted: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tries {
    /// In all.
    all: usize,
    /// The attempts that failed.
    failed: usize,
}

impl Poison {
    fn add(&self, id: InstanceId) {
        self.poisoned.lock().unwrap().push(id);
    }

    fn lift(&self) {
        self.lifted.store(true, Ordering::SeqCst);
    }

    fn tries(&self, id: InstanceId) -> Tries {
        let attempts = self.attempts.lock().unwrap();
        attempts.get(&id).copied().unwrap_or_default()
    }

    /// A handle on the lab's database, in which transactions with a poisoned instance fail so.
    async fn in_store(&self, lab: &Lab, trouble: Trouble) -> Arc<Faulty> {
        let own = self.clone();
        Faulty::new(lab.store().await, move |ops| {
            own.judge(ops).then_some(trouble)
        })
    }

    async fn on(&self, lab: &Lab, trouble: Trouble) -> Abide {
        Abide::options().on(self.in_store(lab, trouble).await)
    }

    fn judge(&self, ops: &[Op]) -> bool {
        let ids: Vec<InstanceId> = ops.iter().flat_map(named).collect();
        let poisoned = self.poisoned.lock().unwrap();
        let fails =
            !self.lifted.load(Ordering::SeqCst) && ids.iter().any(|id| poisoned.contains(id));
        let passed = |id: &InstanceId| {
            let passes = |op: &Op| matches!(op, Op::PassOver { instances, name_only } if *name_only || instances.contains(id));
            ops.iter().any(passes)
        };
        let choose = |op: &Op| matches!(op, Op::Fire { .. });
        if !self.lifted.load(Ordering::SeqCst)
            && self.chosen.load(Ordering::SeqCst)
            && ops.iter().any(choose)
            && !poisoned.iter().all(passed)
        {
            self.failed_choices.fetch_add(1, Ordering::SeqCst);
            return true;
        }
        let healthy = ids.iter().any(|id| !poisoned.contains(id));
        if fails && healthy {
            self.spoiled.fetch_add(1, Ordering::SeqCst);
        }
        let mut attempts = self.attempts.lock().unwrap();
        for id in ids {
            let tries = attempts.entry(id).or_default();
            tries.all += 1;
            tries.failed += usize::from(fails);
        }
        fails
    }
}

/// The instances that an operation commits or delivers to.
fn named(op: &Op) -> Vec<InstanceId> {
    match op {
        Op::Commit { commits, .. } => commits.iter().map(|one| one.claim.id()).collect(),
        Op::Deliver(sent) => {
            let ids = sent.iter().map(|one| match &one.target {
                Target::Id(id) => Some(*id),
                Target::Key(_) => None,
            });
            ids.flatten().collect()
        }
        _ => Vec::new(),
    }
}

const OWN_FAULT: [Trouble; 2] = [Trouble::Conflict, Trouble::Broken];

on_every_store! {
    async fn neighbours_of_an_entry_at_fault_wait_for_one_failed_attempt(lab: Lab) {
        // rule 1.4
        for trouble in OWN_FAULT {
            let poison = Poison::default();
            let store = poison.in_store(&lab, trouble).await;
            let commits = Submit::<Commits>::begin(&Committer::new(store), secs(1));
            let claims = held(&lab, 60).await;
            let bad = claims[17].id();
            poison.add(bad);
            let answers = join_all(claims.iter().map(|claim| commits.ask_one(ends(claim)))).await;
            for (claim, answer) in claims.iter().zip(answers) {
                if claim.id() != bad {
                    assert_eq!(answer.unwrap(), Committed::Moved(Status::Done), "{trouble:?}");
                    let tries = poison.tries(claim.id());
                    assert!(tries.failed <= 1 && tries.all == tries.failed + 1, "{trouble:?}: {tries:?}");
                    continue;
                }
                match (trouble, answer) {
                    // What never passes is refused, and what may pass is left to its caller when that waits no longer.
                    (Trouble::Broken, Ok(Committed::Refused(refusal))) => {
                        assert!(refusal.to_string().contains("it was made so"), "{refusal}");
                        assert_eq!(poison.tries(bad).all, 2);
                    }
                    (Trouble::Conflict, Err(Error::Conflict(_))) => {
                        let tries = poison.tries(bad).all;
                        assert!((3..=17).contains(&tries), "{tries}");
                    }
                    (_, answer) => panic!("{trouble:?}: {answer:?}"),
                }
            }
            assert_eq!(lab.now(bad).await.status, Status::Executing, "the claim is as it was");
        }
    }
}

on_every_store! {
    async fn the_outcomes_of_one_request_do_not_share_their_fate(lab: Lab) {
        // rules 1.4 and 4.2: each has its own answer, also when one worker sends them together.
        let poison = Poison::default();
        let store = poison.in_store(&lab, Trouble::Broken).await;
        let commits = Submit::<Commits>::begin(&Committer::new(store), secs(60));
        let claims = held(&lab, 5).await;
        poison.add(claims[2].id());
        let answers = commits.ask(claims.iter().map(ends).collect()).await.unwrap();
        for (at, answer) in answers.iter().enumerate() {
            match answer {
                Committed::Refused(_) => assert_eq!(at, 2),
                answer => assert_eq!((at != 2, answer), (true, &Committed::Moved(Status::Done))),
            }
        }
    }
}

on_every_store! {
    async fn others_commit_beside_an_entry_that_fails_in_a_loop(lab: Lab) {
        // rule 1.4. The bug: with one poisoned commit in a loop, 320 commits of other workers over HTTP took 40 s to
        // 50 s, and some failed.
        for trouble in OWN_FAULT {
            let poison = Poison::default();
            let store = poison.in_store(&lab, trouble).await;
            let commits = Submit::<Commits>::begin(&Committer::new(store), secs(10));
            let claims = held(&lab, 321).await;
            let (bad, good) = claims.split_first().unwrap();
            poison.add(bad.id());
            let over = Arc::new(AtomicBool::new(false));
            let looping = tokio::spawn({
                let (commits, bad, over) = (commits.clone(), bad.again(), over.clone());
                async move {
                    while !over.load(Ordering::SeqCst) {
                        drop(commits.ask_one(ends(&bad)).await);
                        tokio::task::yield_now().await;
                    }
                }
            });
            eventually("the loop to begin", async || poison.tries(bad.id()).failed > 0).await;
            let workers = good.chunks(20).map(|own| {
                let commits = commits.clone();
                let own: Vec<_> = own.iter().map(ends).collect();
                async move {
                    for commit in own {
                        let id = commit.claim.id();
                        let answer = commits.ask_one(commit).await.unwrap();
                        assert_eq!(answer, Committed::Moved(Status::Done), "instance {id}");
                    }
                }
            });
            soon("all others to be committed", join_all(workers)).await;
            for claim in good {
                let tries = poison.tries(claim.id());
                assert!(tries.failed <= 1, "{trouble:?}: {tries:?}");
            }
            // It is suspected as soon as it has failed alone, and shares no transaction any more.
            let spoiled = poison.spoiled.load(Ordering::SeqCst);
            assert!(spoiled <= 3, "{trouble:?}: {spoiled} transactions of others failed");
            over.store(true, Ordering::SeqCst);
            looping.abort();
        }
    }
}

/// Ends at its first step.
fn ending() -> Script {
    Script::new(|_, _| done(json!("well")))
}

on_every_store! {
    async fn the_engine_serves_others_beside_outcomes_that_cannot_be_stored(lab: Lab) {
        // rules 1.4 and 4.2. The bug: two instances whose outcome conflicted for ever took both writers, and a healthy
        // one started afterwards was still runnable after 25 s. Here they would also take all slots of the queue.
        for trouble in OWN_FAULT {
            let poison = Poison::default();
            let mut bad = Vec::new();
            for _ in 0..2 {
                let handle = lab.start(Script::any(), json!(0)).await.unwrap();
                poison.add(handle.id());
                bad.push(handle.id());
            }
            let abide = poison.on(&lab, trouble).await;
            let engine = abide.engine().queue("default", 2).machine(ending()).start().await.unwrap();
            for id in &bad {
                eventually("its outcome to fail", async || poison.tries(*id).failed >= 2).await;
            }
            for _ in 0..3 {
                let order = abide.start(Script::any(), json!(0)).await.unwrap();
                assert_eq!(lab.came_to(&order).await, json!("well"), "{trouble:?}");
                let tries = poison.tries(order.id());
                assert!(tries.failed <= 1, "{trouble:?}: {tries:?}");
            }
            for id in &bad {
                assert_eq!(lab.now(*id).await.status, Status::Executing, "{trouble:?}");
            }
            // As soon as the database has it, it ends: with its outcome, or with what the error handler made of it.
            poison.lift();
            for id in &bad {
                assert!(lab.ended(*id).await.status.is_terminal());
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn an_outcome_that_cannot_be_stored_goes_to_the_error_handler_and_then_is_tried_rarely(lab: Lab) {
        // rules 1.4, 4.2 and 5.2
        let poison = Poison::default();
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        poison.add(order.id());
        let abide = poison.on(&lab, Trouble::Broken).await;
        let engine = abide.engine().machine(ending()).start().await.unwrap();
        eventually("it to be stuck", async || engine.stats().stuck == 1).await;
        let before = poison.tries(order.id()).all;
        // The outcome in a batch and alone, the handler's outcome alone, and the stop alone.
        assert!(before <= 6, "{before} attempts");
        // Time is what this is about: it is tried again, and not in a loop.
        tokio::time::sleep(millis(1_500)).await;
        let after = poison.tries(order.id()).all;
        assert!(after - before <= 3, "{} attempts in a second and a half", after - before);
        poison.lift();
        let row = lab.ended(order.id()).await;
        assert_eq!(row.status, Status::Failed);
        assert!(row.last_error.clone().unwrap().contains("it was made so"));
        assert_eq!(engine.stats().stuck, 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn an_engine_that_stops_gives_back_what_cannot_be_stored(lab: Lab) {
        // rules 1.4 and 6.7: neither an outcome that is tried again nor one that is stuck holds the shutdown up for longer
        // than steps would.
        for (trouble, grace) in [(Trouble::Broken, hours(1)), (Trouble::Conflict, millis(100))] {
            let poison = Poison::default();
            let order = lab.start(Script::any(), json!(0)).await.unwrap();
            poison.add(order.id());
            let abide = poison.on(&lab, trouble).await;
            let engine = abide.engine().grace(grace).machine(ending()).start().await.unwrap();
            match trouble {
                Trouble::Broken => {
                    eventually("it to be stuck", async || engine.stats().stuck == 1).await;
                }
                _ => eventually("it to wait", async || poison.tries(order.id()).failed >= 5).await,
            }
            soon("the engine to stop", engine.shutdown()).await;
            let row = lab.now(order.id()).await;
            assert_eq!((row.status, row.attempt), (Status::Runnable, 0), "{trouble:?}");
            let engine = lab.engine().machine(ending()).start().await.unwrap();
            assert_eq!(lab.came_to(&order).await, json!("well"), "{trouble:?}: it runs again");
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_shutdown_gives_back_what_cannot_be_given_back_at_first(lab: Lab) {
        // rules 5.4 and 6.7. The bug: an instance that could not be given back was passed over, and the lease ended all
        // the same. So it stayed with the worker until another worker took it back, and that counted as a death.
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        let (bad, is_passed) = (order.id(), AtomicBool::new(false));
        let refuses = move |ops: &[Op]| {
            let gives_back = |op: &Op| matches!(op, Op::SignOff { .. } | Op::GiveBackExcept { .. });
            let around = ops.iter().find_map(|op| match op {
                Op::PassOver { instances, name_only } => Some((instances.contains(&bad), *name_only)),
                _ => None,
            });
            match around {
                _ if !ops.iter().any(gives_back) || is_passed.load(Ordering::SeqCst) => None,
                Some((_, true)) => None,
                Some((true, false)) => {
                    is_passed.store(true, Ordering::SeqCst);
                    None
                }
                _ => Some(Trouble::Conflict),
            }
        };
        let abide = Abide::options().on(Faulty::new(lab.store().await, refuses));
        let gate = Gate::closed();
        let at = gate.clone();
        let engine = abide.engine().grace(millis(50)).machine(Script::waiting(move |_, _| {
            let gate = at.clone();
            Box::pin(async move {
                gate.pass().await;
                done(json!(0))
            })
        }));
        let engine = engine.start().await.unwrap();
        gate.reached_by(1).await;
        soon("the engine to stop", engine.shutdown()).await;
        let row = lab.now(bad).await;
        assert_eq!((row.status, row.attempt, row.deaths), (Status::Runnable, 0, 0));
        assert_eq!(lab.workers().await.unwrap(), [], "it has signed off");
    }
}

const NOTE: Signal<u32> = Signal::new("note");

on_every_store! {
    async fn signals_to_others_are_delivered_beside_one_that_fails(lab: Lab) {
        // rule 1.4: by the task that folds, and by an engine that claims in the same transaction.
        for by_engine in [false, true] {
            let poison = Poison::default();
            let orders = lab.start_all((0..20).map(|_| new_start(Script::any(), json!(0)))).await.unwrap();
            let orders: Vec<InstanceId> = orders.into_iter().map(|one| one.unwrap().id()).collect();
            poison.add(orders[3]);
            let abide = poison.on(&lab, Trouble::Broken).await;
            let gate = Gate::closed();
            let at = gate.clone();
            let engine = abide.engine().machine(Script::waiting(move |_, _| {
                let gate = at.clone();
                Box::pin(async move {
                    gate.pass().await;
                    done(json!(0))
                })
            }));
            let engine = match by_engine {
                true => Some(engine.start().await.unwrap()),
                false => None,
            };
            let sent = join_all(orders.iter().map(|id| abide.signal(*id, NOTE, &7).into_future())).await;
            for (id, sent) in orders.iter().zip(sent) {
                assert_eq!(sent.is_ok(), *id != orders[3], "{sent:?}");
                let tries = poison.tries(*id);
                assert!(tries.failed <= if *id == orders[3] { 2 } else { 1 }, "{tries:?}");
            }
            poison.lift();
            gate.open();
            if let Some(engine) = engine {
                engine.shutdown().await;
            }
        }
    }
}

on_every_store! {
    async fn whatever_fails_each_request_is_answered_once_and_done_as_answered(lab: Lab) {
        // rules 1.1 and 1.4: what was done is reported as done, what was not is not, and only what may be either is unknown.
        let random_trouble = |ops: &[Op]| match fastrand::u8(..100) {
            _ if !ops.iter().any(|op| matches!(op, Op::Start(_))) => None,
            0..8 => Some(Trouble::Away),
            8..20 => Some(Trouble::Conflict),
            20..26 => Some(Trouble::Broken),
            26..32 => Some(Trouble::Lost),
            32..38 => Some(Trouble::AnswerLost),
            _ => None,
        };
        let abide = Abide::options().on(Faulty::new(lab.store().await, random_trouble));
        let ask = async |n: u64| (n, abide.start(Script::any(), json!(n)).await);
        let answers = soon("all to be answered", join_all((0..300).map(ask))).await;
        let all = lab.list(&Default::default(), None, 1_000).await.unwrap().items;
        let mut times: HashMap<u64, usize> = HashMap::new();
        for row in &all {
            *times.entry(serde_json::from_str(row.state.as_str()).unwrap()).or_default() += 1;
        }
        for (n, answer) in answers {
            let times = times.get(&n).copied().unwrap_or_default();
            match answer {
                Ok(_) => assert_eq!(times, 1, "{n} was started {times} times"),
                Err(abide::client::StartError::Error(abide::Error::Unknown(_))) => assert!(times <= 1, "{n}"),
                Err(error) => assert_eq!(times, 0, "{n} was started, though: {error}"),
            }
        }
    }
}

on_every_store! {
    async fn a_caller_that_times_out_while_an_entry_is_tried_again_gets_an_error(lab: Lab) {
        // rule 1.4
        let poison = Poison::default();
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        poison.add(order.id());
        let store = poison.in_store(&lab, Trouble::Conflict).await;
        let abide = Abide::options().patience(millis(200)).on(store);
        let error = soon("an answer", abide.signal(order.id(), NOTE, &7).into_future()).await.unwrap_err();
        assert!(error.to_string().contains("it was made so"), "{error}");
        assert!(poison.tries(order.id()).failed >= 2);
        poison.lift();
        abide.signal(order.id(), NOTE, &7).await.unwrap();
    }
}

on_every_store! {
    async fn the_timers_of_others_fire_beside_one_that_cannot(lab: Lab) {
        // rules 1.4 and 6.5. The bug: one instance that could not be made runnable made the transaction fail that fires
        // timers, so no timer of the store fired any more, also after a restart.
        let poison = Poison::default();
        let bad = lab.start(Script::any(), json!(0)).delay(millis(1)).await.unwrap();
        poison.add(bad.id());
        // The first of those that are due, whichever are.
        poison.chosen.store(true, Ordering::SeqCst);
        let others: Vec<_> = (0..20).map(|n| new_start(Script::any(), json!(0)).delay(millis(50 + n * 20))).collect();
        let others = lab.start_all(others).await.unwrap();
        let others: Vec<InstanceId> = others.into_iter().map(|one| one.unwrap().id()).collect();
        let abide = poison.on(&lab, Trouble::Conflict).await;
        let engine = abide.engine().poll(hours(1)).lease(hours(1)).machine(ending()).start().await.unwrap();
        lab.all_done(&others).await;
        assert_eq!(lab.now(bad.id()).await.status, Status::Scheduled);
        // Four attempts find it, and it comes again after a second, two, four …
        let failed = poison.failed_choices.load(Ordering::SeqCst);
        assert!((2..=20).contains(&failed), "{failed} transactions failed");
        poison.lift();
        assert_eq!(lab.came_to(&bad).await, json!("well"));
        engine.shutdown().await;
    }
}
