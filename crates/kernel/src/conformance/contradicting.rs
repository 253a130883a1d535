//! Several outcomes for one claim in one request (rule 1.7).

use abide_core::model::{Commit, Committed, Outcome, Refusal, Status};

use super::build::{commit, done, json, many, next, plain, spawn, wait};
use super::lab::Lab;
use crate::{Answer, Op};

fn is_contradiction(answer: &Committed) -> bool {
    matches!(answer, Committed::Refused(Refusal::BadOutcome { problem })
        if problem.contains("two different outcomes for this claim"))
}

pub async fn two_different_outcomes_for_one_claim_in_one_request_are_both_refused(lab: Lab) {
    // rule 1.7
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let beside = lab.start(plain()).await;
    let claimed = lab.claim_some(worker, 2).await;
    let claim = |of| {
        let found = claimed.iter().find(|one| one.claim.id() == of);
        found.expect("both are claimed").claim.again()
    };
    let before = (lab.get(id).await, lab.events(id).await);
    for other in [next("c"), done(), spawn(many(2)), wait(&["s"], None)] {
        let sent = [next("b"), other, next("b")].map(|outcome| commit(claim(id), outcome));
        let answers = lab.commit_all(sent.into()).await;
        assert!(answers.iter().all(is_contradiction), "{answers:?}");
        assert_eq!((lab.get(id).await, lab.events(id).await), before);
    }
    // What is sent beside them is committed, and the claim is as it was.
    let sent = vec![
        commit(claim(id), done()),
        commit(claim(beside), done()),
        commit(claim(id), next("b")),
    ];
    let answers = lab.commit_all(sent).await;
    assert!(
        is_contradiction(&answers[0]) && is_contradiction(&answers[2]),
        "{answers:?}"
    );
    assert_eq!(answers[1], Committed::Moved(Status::Done));
    assert_eq!((lab.get(id).await, lab.events(id).await), before);
    assert_eq!(
        lab.commit(claim(id), done()).await,
        Committed::Moved(Status::Done)
    );
    // Also one that was committed before: which of them is meant cannot be known.
    let sent = [next("b"), done()].map(|outcome| commit(claim(id), outcome));
    let answers = lab.commit_all(sent.into()).await;
    assert!(answers.iter().all(is_contradiction), "{answers:?}");
    assert_eq!(lab.status(id).await, Status::Done);
}

pub async fn different_outcomes_in_two_operations_of_a_request_are_both_refused(lab: Lab) {
    // rule 1.7: the second operation of the request was answered as a repeat of the first, although it was different.
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let before = (lab.get(id).await, lab.events(id).await);
    let sent = async |outcomes: [Outcome; 2]| -> Vec<Committed> {
        let ops = outcomes.map(|outcome| Op::Commit {
            commits: vec![commit(claim.again(), outcome)],
            serves: Vec::new(),
        });
        let answers = lab.store.run(ops.into()).await.expect("each is answered");
        let each = answers.into_iter().map(|answer| match answer {
            Answer::Committed(mut each) => each.remove(0),
            other => panic!("a commit is not answered with {other:?}"),
        });
        each.collect()
    };
    for outcomes in [[next("b"), done()], [done(), next("b")]] {
        let answers = sent(outcomes).await;
        assert!(answers.iter().all(is_contradiction), "{answers:?}");
        assert_eq!((lab.get(id).await, lab.events(id).await), before);
    }
    let answers = sent([done(), done()]).await;
    let expected = [
        Committed::Moved(Status::Done),
        Committed::Repeated(Status::Done),
    ];
    assert_eq!(answers, expected, "the same twice is a repeat");
}

pub async fn outcomes_that_are_written_differently_are_the_same(lab: Lab) {
    // rule 1.7
    let worker = lab.worker("w").await;
    let id = lab.start(plain()).await;
    let claim = lab.claim(worker).await.claim;
    let written = [
        r#"{"a":1,"b":{"c":[1,2],"d":null}}"#,
        r#"{ "b" : {"d":null,"c":[ 1,2 ]}, "a":1 }"#,
    ];
    let sent = written.map(|state| -> Commit {
        let result = json(state);
        commit(claim.again(), Outcome::Done { result })
    });
    let answers = lab.commit_all(sent.into()).await;
    assert_eq!(
        answers,
        [
            Committed::Moved(Status::Done),
            Committed::Repeated(Status::Done)
        ]
    );
    assert_eq!(lab.get(id).await.result, Some(json(written[0])));
}
