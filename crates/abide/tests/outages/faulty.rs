//! A store that loses requests and answers: every one of them may be sent again, and none takes effect twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use abide::client::{StartError, new_start};
use abide::time::{hours, millis};
use abide::{Abide, Error, Status, done};
use abide_kernel::{Op, Store};
use futures_util::future::join_all;
use serde_json::json;

use crate::common::{At, Faulty, Gate, Lab, Log, Script, Trouble, soon};
use crate::outages::signals::NOTE;
use crate::outages::{STEPS, each_took_its_steps_once, walk};

/// A handle on the lab's database that goes through trouble.
pub async fn troubled(
    lab: &Lab,
    plan: impl Fn(&[Op]) -> Option<Trouble> + Send + Sync + 'static,
) -> Abide {
    let store: Arc<dyn Store> = Faulty::new(lab.store().await, plan);
    Abide::options().on(store)
}

/// Plans that trouble for the first of the selected transactions, and none after.
pub fn once(
    trouble: Trouble,
    meant: impl Fn(&Op) -> bool + Send + Sync + 'static,
) -> impl Fn(&[Op]) -> Option<Trouble> + Send + Sync + 'static {
    let met = AtomicUsize::new(0);
    move |ops| {
        let first = ops.iter().any(&meant) && met.fetch_add(1, Ordering::SeqCst) == 0;
        first.then_some(trouble)
    }
}

on_every_store! {
    async fn a_claim_whose_answer_got_lost_is_found_and_given_back(lab: Lab) {
        // rules 5.4, 6.4: not by its lease, which does not run out during this test, and without another attempt.
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        let abide = troubled(&lab, once(Trouble::AnswerLost, |op| matches!(op, Op::Claim(_)))).await;
        let engine = abide.engine().lease(hours(1)).machine(walk()).start().await.unwrap();
        each_took_its_steps_once(&lab, &[order.id()]).await;
        assert!(!lab.kinds(order.id()).await.contains(&"reclaimed"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_claim_that_was_lost_together_with_the_commit_before_it_is_found(lab: Lab) {
        // rule 6.4: the outcome puts its instance back, and the same transaction claims it anew.
        let collects = Script::new(|at, ctx| match at {
            At::One => ctx.wait_for(NOTE).then(At::Two),
            _ => done(json!(ctx.awaited(NOTE)?)),
        });
        let order = lab.start(Script::any(), json!(null)).key("k").await.unwrap();
        lab.signal("k", NOTE, &7).await.unwrap();
        let lost = Arc::new(AtomicUsize::new(0));
        let met = lost.clone();
        let both = move |ops: &[Op]| {
            let both = ops.iter().any(|op| matches!(op, Op::Commit { .. })) && ops.iter().any(|op| matches!(op, Op::Claim(_)));
            (both && met.fetch_add(1, Ordering::SeqCst) == 0).then_some(Trouble::AnswerLost)
        };
        let abide = troubled(&lab, both).await;
        let engine = abide.engine().lease(hours(1)).poll(hours(1)).queue("default", 1).machine(collects);
        let engine = engine.start().await.unwrap();
        assert_eq!(lab.came_to(&order).await, json!(7));
        assert!(lost.load(Ordering::SeqCst) > 0, "nothing was lost");
        assert!(!lab.kinds(order.id()).await.contains(&"reclaimed"));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_commit_whose_answer_got_lost_is_known_by_its_epoch(lab: Lab) {
        // rules 1.1, 1.3: it is sent again, and neither taken for stale nor made twice.
        let runs = Log::new();
        for trouble in [Trouble::AnswerLost, Trouble::Lost, Trouble::Away, Trouble::Conflict] {
            let abide = troubled(&lab, once(trouble, |op| matches!(op, Op::Commit { .. }))).await;
            let noted = runs.clone();
            let engine = abide.engine().machine(Script::new(move |at, ctx| {
                noted.note((ctx.id(), at));
                match at {
                    At::One => abide::next(At::Two),
                    At::Two => ctx.spawn([new_start(Script::any(), json!(0)).step(At::Three)]).then(At::Three),
                    At::Three => done(json!(ctx.children().len())),
                }
            }));
            let engine = engine.start().await.unwrap();
            let order = lab.start(Script::any(), json!(0)).await.unwrap();
            assert_eq!(lab.came_to(&order).await, json!(1), "{trouble:?}");
            let steps: Vec<_> = runs.read().into_iter().filter(|(id, _)| *id == order.id()).map(|(_, at)| at).collect();
            assert_eq!(steps, [At::One, At::Two, At::Three], "{trouble:?}: no step is run again");
            assert_eq!(lab.committed(order.id()).await.len(), 3);
            assert_eq!(engine.stats().stale, 0);
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn a_conflict_that_lasts_is_waited_for_and_calls_no_error_handler(lab: Lab) {
        // rules 1.4 and 4.2. The bug: a transaction that conflicted sixteen times in a moment was taken for a refused
        // outcome, so the error handlers of healthy steps were called for locks, and instances failed of them. Attempts are
        // bounded, but they last longer than a lock does.
        let conflicts = AtomicUsize::new(0);
        let abide = troubled(&lab, move |ops| {
            let commits = ops.iter().any(|op| matches!(op, Op::Commit { .. }));
            (commits && conflicts.fetch_add(1, Ordering::SeqCst) < 9).then_some(Trouble::Conflict)
        });
        let engine = abide.await.engine().machine(walk()).start().await.unwrap();
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        each_took_its_steps_once(&lab, &[order.id()]).await;
        assert_eq!((engine.stats().refused, engine.stats().stale), (0, 0));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn whatever_is_lost_on_the_way_nothing_is_lost_in_the_end(lab: Lab) {
        // rules 1.1, 1.3, 5.4
        let random_trouble = |ops: &[Op]| match fastrand::u8(..100) {
            _ if ops.iter().any(|op| matches!(op, Op::Register(_) | Op::Declare { .. } | Op::Reclaim { .. })) => None,
            0..8 => Some(Trouble::Away),
            8..16 => Some(Trouble::Conflict),
            16..24 => Some(Trouble::Lost),
            24..32 => Some(Trouble::AnswerLost),
            _ => None,
        };
        let build = async || {
            let engine = troubled(&lab, random_trouble).await.engine();
            engine.queue("default", 10).machine(walk()).start().await.unwrap()
        };
        let (one, two) = (build().await, build().await);
        let client = troubled(&lab, random_trouble).await;
        let mut ids = Vec::new();
        for n in 0..120 {
            // A start with a key is safe to repeat.
            let (key, partition) = (format!("order:{n}"), format!("p:{}", n % 40));
            let id = loop {
                match client.start(Script::any(), json!(0)).key(&key).partition(&partition).await {
                    Ok(handle) => break handle.id(),
                    Err(StartError::Duplicate { holder }) => break holder,
                    Err(StartError::Error(Error::Unknown(_))) => {}
                    Err(other) => panic!("{other}"),
                }
            };
            ids.push(id);
        }
        // A key may be free again when its holder has ended, so the last answer to get lost may have started two.
        let all = lab.list(&Default::default(), None, 1_000).await.unwrap().items;
        assert!(all.len() >= ids.len());
        let results = ids.iter().map(async |id| {
            let handle = client.handle::<u32>(*id).await.unwrap().unwrap();
            handle.result().await.unwrap()
        });
        let results = soon("all results", join_all(results)).await;
        assert!(results.iter().all(|steps| *steps == STEPS), "{results:?}");
        each_took_its_steps_once(&lab, &all.iter().map(|row| row.id).collect::<Vec<_>>()).await;
        one.shutdown().await;
        two.shutdown().await;
        assert!(lab.depths().await.unwrap().is_empty(), "nothing is left behind");
    }
}

on_every_store! {
    async fn a_start_whose_answer_got_lost_reports_an_unknown_outcome(lab: Lab) {
        // rule 2.2
        for trouble in [Trouble::AnswerLost, Trouble::Lost] {
            let abide = troubled(&lab, once(trouble, |op| matches!(op, Op::Start(_)))).await;
            let start = || abide.start(Script::any(), json!(0)).key(format!("{trouble:?}"));
            let error = start().await.unwrap_err();
            assert!(matches!(error, StartError::Error(Error::Unknown(_))), "{error:?}");
            assert!(error.to_string().contains("retry it if it has a key"), "{error}");
            let again = start().or_existing().await.unwrap();
            assert_eq!(again.is_new(), trouble == Trouble::Lost);
        }
        // A start that was surely not written is tried again without an error.
        for trouble in [Trouble::Away, Trouble::Conflict] {
            let abide = troubled(&lab, once(trouble, |op| matches!(op, Op::Start(_)))).await;
            assert!(abide.start(Script::any(), json!(0)).await.unwrap().is_new());
        }
    }
}

/// No heartbeat comes through while it is shut.
fn no_heartbeat_while(
    shut: &Arc<AtomicBool>,
) -> impl Fn(&[Op]) -> Option<Trouble> + Send + Sync + 'static {
    let shut = shut.clone();
    move |ops| {
        let beats = ops.iter().any(|op| matches!(op, Op::Renew { .. }));
        (beats && shut.load(Ordering::SeqCst)).then_some(Trouble::Away)
    }
}

on_every_store! {
    async fn a_worker_whose_lease_has_run_out_claims_nothing_until_it_has_another(lab: Lab) {
        // rules 1.3, 5.3: and then at once; with a poll that does not come during this test.
        let shut = Arc::new(AtomicBool::new(true));
        let abide = troubled(&lab, no_heartbeat_while(&shut)).await;
        let engine = abide.engine().name("w").lease(millis(600)).poll(hours(1)).machine(walk());
        let engine = engine.start().await.unwrap();
        let begun = lab.workers().await.unwrap()[0].id;
        lab.workers_are(0).await;
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        // Time is what this is about: for so long it could claim and must not.
        tokio::time::sleep(millis(300)).await;
        assert_eq!(lab.now(order.id()).await.status, Status::Runnable);
        shut.store(false, Ordering::SeqCst);
        each_took_its_steps_once(&lab, &[order.id()]).await;
        let workers = lab.workers().await.unwrap();
        assert!(workers.len() == 1 && workers[0].id != begun, "{workers:?}");
        assert!(workers[0].name.as_str().starts_with("w~"), "{workers:?}");
        engine.shutdown().await;
        lab.workers_are(0).await;
    }
}

on_every_store! {
    async fn a_claim_that_was_lost_and_made_anew_is_finished_in_a_shutdown(lab: Lab) {
        // rule 6.7. The bug: when the outcome of the lost claim was thrown away, the worker took the instance for no
        // longer held, and a shutdown did not wait for the step that ran under the new claim.
        let shut = Arc::new(AtomicBool::new(false));
        let gates = [Gate::closed(), Gate::closed()];
        let at = gates.clone();
        let abide = troubled(&lab, no_heartbeat_while(&shut)).await;
        let engine = abide.engine().lease(millis(600)).machine(Script::waiting(move |_, ctx| {
            let gate = at[ctx.attempt() as usize].clone();
            Box::pin(async move {
                gate.pass().await;
                done(json!(ctx.attempt()))
            })
        }));
        let engine = engine.start().await.unwrap();
        let order = lab.start(Script::any(), json!(0)).await.unwrap();
        gates[0].reached_by(1).await;
        // Its lease runs out, and another takes the claim, but has no code for it.
        shut.store(true, Ordering::SeqCst);
        let other = lab.again().await.engine().lease(millis(900)).queue("elsewhere", 1).machine(walk());
        let other = other.start().await.unwrap();
        lab.until_status(order.id(), Status::Runnable).await;
        shut.store(false, Ordering::SeqCst);
        gates[1].reached_by(1).await;
        let mut stopping = Box::pin(engine.shutdown());
        assert!(futures_util::poll!(&mut stopping).is_pending());
        gates[0].open();
        // Long enough for the first outcome to be thrown away.
        assert!(tokio::time::timeout(millis(500), &mut stopping).await.is_err(), "it waits for the second");
        let row = lab.now(order.id()).await;
        assert_eq!((row.status, row.attempt), (Status::Executing, 1));
        gates[1].open();
        soon("the shutdown to end", stopping).await;
        assert_eq!(lab.came_to(&order).await, json!(1));
        other.shutdown().await;
    }
}
