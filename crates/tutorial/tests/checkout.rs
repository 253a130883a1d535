//! Orders, in a time that the tests move.

use abide::prelude::*;
use abide::testing::Kit;
use orders::{At, Checkout, Order, PAID, Payment};

fn order(item: &str) -> Order {
    let item = item.into();
    Order { item, price: 100 }
}

#[tokio::test]
async fn what_is_paid_is_shipped() -> Result<(), BoxError> {
    let kit = Kit::builder().machine(Checkout).build().await?;
    let kettle = kit.start(Checkout, order("kettle")).key("order:1").await?;
    kit.settle().await;
    kit.assert_at(&kettle, At::Ship).await;

    let payment = Payment { amount: 100 };
    kit.signal("order:1", PAID, &payment).dedup("evt-7").await?;
    kit.signal("order:1", PAID, &payment).dedup("evt-7").await?; // the bank sends it twice
    kit.settle().await;
    let shipped = "kettle shipped, 100 paid".to_owned();
    kit.assert_done(&kettle, &shipped).await;
    Ok(())
}

#[tokio::test]
async fn what_is_not_paid_goes_back_after_three_days() -> Result<(), BoxError> {
    let kit = Kit::builder().machine(Checkout).build().await?;
    let kettle = kit.start(Checkout, order("kettle")).await?;
    kit.advance(days(3)).await;
    let released = "kettle is back on its shelf".to_owned();
    kit.assert_done(&kettle, &released).await;
    Ok(())
}

#[tokio::test]
async fn what_the_warehouse_does_not_have_is_tried_three_times() -> Result<(), BoxError> {
    let kit = Kit::builder().machine(Checkout).build().await?;
    let unicorn = kit.start(Checkout, order("unicorn")).await?;
    kit.advance(minutes(1)).await;
    kit.assert_failed(&unicorn, "the warehouse has no unicorn")
        .await;
    Ok(())
}

#[tokio::test]
async fn a_worker_that_dies_loses_nothing() -> Result<(), BoxError> {
    let kit = Kit::builder().machine(Checkout).build().await?;
    let kettle = kit.start(Checkout, order("kettle")).key("order:1").await?;
    kit.settle().await;
    kit.kill_worker_before_commit(At::Ship);
    kit.signal("order:1", PAID, &Payment { amount: 100 })
        .await?;
    kit.settle().await;
    assert!(kit.worker_is_dead().await);

    kit.restart_worker().await?;
    kit.settle().await;
    let shipped = "kettle shipped, 100 paid".to_owned();
    kit.assert_done(&kettle, &shipped).await;
    Ok(())
}
