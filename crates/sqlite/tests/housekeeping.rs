//! Sweeping that delays no other request.

use std::time::{Duration, Instant};

use crate::common::{Database, start_one};
use abide_kernel::{EventFilter, Store, SweepPass};

#[tokio::test]
async fn a_hundred_thousand_events_are_swept_and_no_request_waits() {
    // rule 16.2
    let database = Database::new();
    let store = database.open();
    let events = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 100000)
        insert into abide_events (published_at, event_type, event_id, payload)
        select 1, 'old', cast(i as text), '{\"some\":\"payload\"}' from n";
    database.connect().execute_batch(events).unwrap();
    let sweeping = tokio::spawn({
        let store = store.clone();
        async move {
            let begun = Instant::now();
            let mut pass = SweepPass::new(store.clock().now() - Duration::from_secs(3600), None);
            let mut batches = 0;
            loop {
                let sent = Instant::now();
                let answers = store.run([pass.batch()].into()).await.unwrap();
                batches += 1;
                let took = sent.elapsed();
                if !pass.note(&answers, took).unwrap() {
                    return (begun.elapsed(), batches);
                }
                tokio::time::sleep(took).await;
            }
        }
    });
    let mut longest = Duration::ZERO;
    while !sweeping.is_finished() {
        let sent = Instant::now();
        start_one(&*store).await;
        longest = longest.max(sent.elapsed());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let (took, batches) = sweeping.await.unwrap();
    eprintln!("100,000 events: {took:?} in {batches} batches; the longest start took {longest:?}");
    assert!(batches >= 200, "each batch is bounded: {batches}");
    assert!(longest < Duration::from_secs(2), "a start took {longest:?}");
    let left = store
        .events(&EventFilter::default(), None, 10)
        .await
        .unwrap();
    assert!(left.items.is_empty());
    store.close().await;
}
