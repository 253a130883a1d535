//! Sending an update and reading its answer: at once, later, from elsewhere.

use abide::client::{SendError, UpdateError};
use abide::time::{hours, millis};

use crate::common::Lab;
use crate::updates::{ADD, Books, SHUT, SLOW, Till, books, engine, standing};

on_every_store! {
    async fn an_answer_can_be_read_later_by_its_id_from_anywhere(lab: Lab) {
        // rule 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let update = lab.update(&order, ADD, &5).accepted().await.unwrap();
        assert_eq!(lab.update_handle::<i64>(update.id()).answer().await.unwrap(), 5);
        let outside = lab.again().await;
        assert_eq!(outside.update_handle::<i64>(update.id()).answer().await.unwrap(), 5);
        lab.signal(&order, SHUT, &()).await.unwrap();
        lab.came_to(&order).await;
        assert_eq!(outside.update_handle::<i64>(update.id()).answer().await.unwrap(), 5, "after its end too");
        let nothing = lab.update_handle::<i64>(abide::model::CommandId(999_999));
        assert!(nothing.record().await.unwrap().is_none());
        assert!(matches!(nothing.answer().await, Err(UpdateError::Gone { .. })));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_caller_that_waits_in_another_process_gets_the_answer_too(lab: Lab) {
        // rules 6.6 and 9.1
        let till = Till::gated();
        let engine = lab.engine().poll(hours(1)).machine(till.clone()).start().await.unwrap();
        let order = standing(&lab, &till, "waits").await;
        let outside = lab.again().await;
        for n in 1..=5 {
            assert_eq!(outside.update(&order, ADD, &1).await.unwrap(), n);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_caller_that_times_out_gets_an_error_and_the_update_is_answered_all_the_same(lab: Lab) {
        // rule 9.1
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let error = lab.update(&order, SLOW, &5).within_time(millis(30)).await.unwrap_err();
        let UpdateError::NotYet { id } = error else { panic!("{error}") };
        assert!(error.to_string().contains(&id.to_string()), "{error}");
        let again = lab.update_handle::<i64>(id);
        assert!(matches!(again.answer_within(millis(10)).await, Err(UpdateError::NotYet { .. })));
        till.gate.open();
        assert_eq!(again.answer().await.unwrap(), 5);
        assert_eq!(lab.now(order.id()).await.state.to::<Books>().unwrap().entries, [5]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn without_an_engine_it_is_accepted_and_not_answered_until_there_is_one(lab: Lab) {
        // rules 1.1 and 9.1
        let till = Till::gated();
        let order = lab.start(till.clone(), books("waits")).key("order:1").await.unwrap();
        let update = lab.update("order:1", ADD, &5).accepted().await.unwrap();
        assert!(matches!(update.answer_within(millis(30)).await, Err(UpdateError::NotYet { .. })));
        assert_eq!(update.record().await.unwrap().unwrap().status.name(), "accepted");
        assert_eq!(lab.now(order.id()).await.inbox.updates, 1);
        let engine = engine(&lab, &till).await;
        assert_eq!(update.answer().await.unwrap(), 5);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_request_id_makes_it_one_update_with_one_answer(lab: Lab) {
        // rule 9.3
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let add = |amount: i64| lab.update("waits", ADD, &amount).request_id("r-1");
        assert_eq!(add(5).await.unwrap(), 5);
        lab.update("waits", ADD, &1).await.unwrap();
        assert_eq!(add(5).await.unwrap(), 5, "the answer that it had");
        assert!(add(5).accepted().await.unwrap().receipt().unwrap().duplicate);
        let error = add(6).await.unwrap_err();
        let UpdateError::Send(SendError::Rejected(rejected)) = error else { panic!("{error}") };
        assert_eq!(rejected.why.outcome(), "rejected_conflicting_duplicate");
        // A signal's dedup key is another thing.
        assert!(!lab.signal("waits", SHUT, &()).dedup("r-1").await.unwrap().duplicate);
        lab.came_to(&order).await;
        assert_eq!(add(5).await.unwrap(), 5, "after its end too");
        assert_eq!(till.log.read(), [5, 1]);
        engine.shutdown().await;
    }
}
