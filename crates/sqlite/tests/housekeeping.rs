//! Sweeping that delays no other request.

use crate::common::Database;
use abide_kernel::conformance::sweeping::sweep_beside_starts;

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
    sweep_beside_starts(store).await;
}
