//! `check()`: what a build could not run is found before it runs, however much has ended since.

use std::sync::Arc;
use std::time::Duration;

use abide::model::{Json, Name, Start, Started};
use abide::time::minutes;
use abide::{
    BoxError, Context, Flow, InstanceId, Machine, Outcome, Signal, Status, Step, Workflow, done,
};
use abide_kernel::model::{Claimed, Commit, Lane};
use abide_kernel::{Answer, ClaimRequest, NewWorker, Op};
use serde::{Deserialize, Serialize};

use crate::common::Lab;

const GO: Signal<u32> = Signal::new("go");

#[derive(Step)]
enum At {
    Wait,
    Send,
}

/// A machine as it was.
struct Parcel;

#[derive(Serialize, Deserialize)]
struct Address {
    street: String,
}

impl Machine for Parcel {
    const NAME: &'static str = "parcel";
    type Step = At;
    type State = Address;
    type Output = u32;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Wait => ctx.wait_for(GO).then(At::Send),
            At::Send => done(ctx.awaited(GO)?),
        }
    }
}

/// The same machine, with a field more in its state.
struct NewParcel;

#[derive(Serialize, Deserialize)]
struct NewAddress {
    street: String,
    country: String,
}

impl Machine for NewParcel {
    const NAME: &'static str = "parcel";
    type Step = At;
    type State = NewAddress;
    type Output = u32;

    async fn step(&self, _: At, _: &mut Context<Self>) -> Outcome<Self> {
        done(0)
    }
}

fn parcel(version: u32) -> Start {
    let state = r#"{"street": "Low Road"}"#.to_owned();
    Start {
        version: Some(version),
        queue: Some(Name::new("unserved").unwrap()),
        ..Start::of(Name::new("parcel").unwrap(), Json::parse(state).unwrap())
    }
}

/// Starts that many parcels in a queue that nothing serves.
async fn start_all(lab: &Lab, version: u32, count: usize) -> Vec<InstanceId> {
    let starts = Op::Start(vec![parcel(version); count]);
    let answers = lab.store().await.run(Arc::from([starts])).await.unwrap();
    let Some(Answer::Started(started)) = answers.into_iter().next() else {
        panic!("a start was answered with something else");
    };
    let id = |one| match one {
        Ok(Started::New(id)) => id,
        other => panic!("{other:?}"),
    };
    started.into_iter().map(id).collect()
}

/// Ends that many of those, as a worker that has the code does: hundreds in one transaction.
async fn end(lab: &Lab, count: usize) {
    let store = lab.store().await;
    let run = async |op: Op| store.run(Arc::from([op])).await.unwrap().remove(0);
    let queue = Name::new("unserved").unwrap();
    let lanes = vec![Lane {
        machine: Name::new("parcel").unwrap(),
        version: 1,
    }];
    let worker = NewWorker {
        name: Name::new("ends").unwrap(),
        lease: minutes(1),
        queues: vec![queue.clone()],
        lanes: lanes.clone(),
        build: None,
    };
    let Answer::Registered(worker) = run(Op::Register(worker)).await else {
        panic!("a registration was answered with something else");
    };
    let mut ended = 0;
    while ended < count {
        let request = ClaimRequest {
            worker: worker.id,
            queue: queue.clone(),
            lanes: lanes.clone(),
            limit: 500.min(count - ended),
            lease: None,
        };
        let Answer::Claimed(claimed) = run(Op::Claim(request)).await else {
            panic!("a claim was answered with something else");
        };
        assert!(!claimed.is_empty(), "{ended} of {count} have ended");
        ended += claimed.len();
        let done = |one: Claimed| Commit {
            claim: one.claim,
            outcome: abide_kernel::model::Outcome::Done {
                result: Json::of(&1).unwrap(),
            },
            keep: false,
            took: Duration::ZERO,
            error: None,
        };
        let commits = claimed.into_iter().map(done).collect();
        let serves = Vec::new();
        run(Op::Commit { commits, serves }).await;
    }
}

on_every_store! {
    async fn an_old_open_instance_is_checked_however_many_have_ended_since(lab: Lab) {
        // rule 12.4: a busy machine, of which one instance has waited for long
        let old = lab.engine().machine(Parcel).start().await.unwrap();
        let waits = lab.start(Parcel, Address { street: "High Street".to_owned() }).await.unwrap();
        lab.until_status(waits.id(), Status::AwaitingSignal).await;
        old.shutdown().await;
        start_all(&lab, 1, 10_100).await;
        end(&lab, 10_100).await;

        let check = lab.engine().machine(NewParcel).check().await.unwrap();
        let problems: Vec<(InstanceId, &str)> = check.unfit.iter().map(|one| (one.id, one.problem.as_str())).collect();
        let problem = "the state of parcel version 1 does not match its type: `country` is missing";
        assert_eq!((check.checked, problems), (1, vec![(waits.id(), problem)]));
    }
}

on_every_store! {
    async fn the_newest_hundred_of_a_version_are_checked_whatever_they_wait_for(lab: Lab) {
        // rule 12.4
        let old = lab.engine().machine(Parcel).start().await.unwrap();
        let waits = lab.start(Parcel, Address { street: "High Street".to_owned() }).await.unwrap();
        lab.until_status(waits.id(), Status::AwaitingSignal).await;
        let queued = start_all(&lab, 1, 99).await;
        // Those of another version are not counted.
        start_all(&lab, 2, 600).await;
        let unfit = async || {
            let check = lab.engine().machine(NewParcel).check().await.unwrap();
            assert_eq!(check.checked, check.unfit.len());
            check.unfit.into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        let newest = |newer: &[InstanceId]| newer.iter().rev().chain(queued.iter().rev()).copied().collect::<Vec<_>>();
        assert_eq!(unfit().await, [newest(&[]), vec![waits.id()]].concat());
        let newer = start_all(&lab, 1, 1).await;
        assert_eq!(unfit().await, newest(&newer), "the oldest is left out");
        old.shutdown().await;
    }
}

on_every_store! {
    async fn a_check_replays_workflows_with_the_code_that_has_changed(lab: Lab) {
        // rule 12.4
        const REMIND: Flow<u32, u32> = Flow::new("remind");
        async fn named(wf: Workflow, step: &'static str, n: u32) -> Result<u32, BoxError> {
            let n = wf.step(step, move || async move { Ok::<_, BoxError>(n + 1) }).await?;
            Ok(n + wf.signal(GO).await?)
        }
        let was = |wf: Workflow, n: u32| named(wf, "add", n);
        let is = |wf: Workflow, n: u32| named(wf, "sum", n);
        let old = lab.engine().workflow(REMIND, was).start().await.unwrap();
        let run = lab.start(REMIND, 1).key("remind:1").await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        let before = lab.events(run.id()).await;

        let check = lab.engine().workflow(REMIND, is).check().await.unwrap();
        let [unfit] = check.unfit.as_slice() else {
            panic!("{check:?}");
        };
        assert_eq!((unfit.id, unfit.key.as_ref().unwrap().as_str()), (run.id(), "remind:1"));
        let problem = &unfit.problem;
        let (recorded, requested) = problem.split_once(", and the code asks for ").unwrap();
        assert!(recorded.contains(r#"step "add""#) && requested.contains(r#"step "sum""#), "{problem}");

        assert!(lab.engine().workflow(REMIND, was).check().await.unwrap().fits());
        assert_eq!(lab.events(run.id()).await, before, "nothing was noted");
        lab.signal(run.id(), GO, &5).await.unwrap();
        assert_eq!(lab.came_to(&run).await, 7, "the code that runs goes on");
        old.shutdown().await;
    }
}
