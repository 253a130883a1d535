//! Workers that die while they handle an update.

use abide::Status;
use abide::client::Handle;
use abide::testing::Kit;

use crate::common::{Lab, eventually};
use crate::updates::{ADD, At, Books, CLOSE, SHUT, Till, books, standing};

async fn parked(till: &Till) -> (Kit, Handle<Books>) {
    let kit = Kit::builder().machine(till.clone()).build().await.unwrap();
    let order = kit
        .start(till.clone(), books("waits"))
        .key("order:1")
        .await
        .unwrap();
    kit.settle().await;
    kit.assert_status(&order, Status::AwaitingSignal).await;
    (kit, order)
}

#[tokio::test]
async fn a_worker_that_dies_before_the_answer_is_committed_leaves_nothing_of_it() {
    // rules 1.1 and 9.1
    let till = Till::gated();
    let (kit, order) = parked(&till).await;
    kit.kill_worker_before_commit(At::Shut);
    let update = kit.update("order:1", ADD, &5).accepted().await.unwrap();
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    assert_eq!(
        (
            till.log.len(),
            update.record().await.unwrap().unwrap().status.name()
        ),
        (1, "accepted")
    );
    assert_eq!(
        order
            .get()
            .await
            .unwrap()
            .unwrap()
            .state
            .to::<Books>()
            .unwrap()
            .total,
        0
    );
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    assert_eq!(update.answer().await.unwrap(), 5);
    assert_eq!(
        till.log.read(),
        [5, 5],
        "it was handled again, and counted once"
    );
    kit.assert_status(&order, Status::AwaitingSignal).await;
    kit.signal("order:1", SHUT, &()).await.unwrap();
    kit.settle().await;
    let came_to = Books {
        total: 5,
        entries: vec![5],
        ..books("waits")
    };
    kit.assert_done(&order, &came_to).await;
}

#[tokio::test]
async fn a_worker_that_dies_after_the_commit_has_answered() {
    // rules 1.1 and 9.1
    let till = Till::gated();
    let (kit, order) = parked(&till).await;
    kit.kill_worker_after_commit(At::Shut);
    let update = kit.update("order:1", ADD, &5).accepted().await.unwrap();
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    assert_eq!(update.answer().await.unwrap(), 5);
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    assert_eq!(till.log.read(), [5]);
    kit.assert_status(&order, Status::AwaitingSignal).await;
}

#[tokio::test]
async fn an_update_before_the_first_step_survives_the_worker_too() {
    // rules 1.1 and 9.1
    let till = Till::gated();
    let kit = Kit::builder().machine(till.clone()).build().await.unwrap();
    kit.kill_worker_before_commit(At::Open);
    let order = kit
        .start(till.clone(), books("waits"))
        .key("order:1")
        .delay(abide::time::hours(1))
        .await
        .unwrap();
    let update = kit.update("order:1", ADD, &5).accepted().await.unwrap();
    kit.settle().await;
    assert!(kit.worker_is_dead().await);
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    assert_eq!(update.answer().await.unwrap(), 5);
    kit.assert_status(&order, Status::Scheduled).await;
    kit.kill_worker_before_commit(At::Open);
    kit.advance(abide::time::hours(1)).await;
    kit.restart_worker().await.unwrap();
    kit.settle().await;
    kit.assert_status(&order, Status::AwaitingSignal).await;
    assert_eq!(kit.update("order:1", CLOSE, &()).await.unwrap(), "closed");
    kit.settle().await;
    kit.assert_status(&order, Status::Done).await;
}

on_every_store! {
    async fn an_engine_that_dies_in_a_handler_is_replaced_and_the_update_answered(lab: Lab) {
        // rules 1.1, 5.3 and 9.1
        let till = Till::gated();
        let of_killable = till.clone();
        let killable = lab.killable(move |engine| engine.name("w").machine(of_killable)).await;
        let order = standing(&lab, &till, "waits").await;
        let update = lab.update(&order, crate::updates::SLOW, &5).accepted().await.unwrap();
        till.gate.reached_by(1).await;
        killable.die().await;
        assert_eq!(update.record().await.unwrap().unwrap().status.name(), "accepted");
        till.gate.open();
        let heir = lab.engine().name("w").machine(till.clone()).start().await.unwrap();
        assert_eq!(update.answer().await.unwrap(), 5);
        let row = lab.until_status(order.id(), Status::AwaitingSignal).await;
        assert_eq!(row.state.to::<Books>().unwrap().entries, [5]);
        // The wait goes on.
        lab.signal(&order, SHUT, &()).await.unwrap();
        assert_eq!(lab.came_to(&order).await.entries, [5]);
        eventually("it to be recorded once", async || {
            lab.kinds(order.id()).await.iter().filter(|kind| **kind == "update_completed").count() == 1
        }).await;
        heir.shutdown().await;
    }
}
