//! A deploy: orders that wait go on with the new code.

mod after;

use abide::prelude::*;
use orders::{PAID, Payment};

#[tokio::test]
async fn an_order_that_waits_goes_on_with_the_new_code() -> Result<(), BoxError> {
    let abide = Abide::open("memory:").await?;
    let before = abide.engine().machine(orders::Checkout).start().await?;
    let kettle = orders::Order {
        item: "kettle".into(),
        price: 100,
    };
    let order = abide.start(orders::Checkout, kettle).key("order:1").await?;
    while order.get().await?.map(|one| one.status) != Some(Status::AwaitingSignal) {
        tokio::time::sleep(millis(1)).await;
    }
    before.shutdown().await;

    let after = abide.engine().machine(after::Checkout).start().await?;
    abide
        .signal("order:1", PAID, &Payment { amount: 100 })
        .await?;
    assert_eq!(order.result().await?, "kettle shipped, 100 paid, thank you");
    after.shutdown().await;
    Ok(())
}
