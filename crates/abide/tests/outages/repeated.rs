//! Calls of a request that may be made more than once, through a store that loses requests and answers (rule 1.5).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::Abide;
use abide::model::{Fingerprint, Name, RequestId};
use abide::store::Filter;
use abide::time::millis;
use abide_kernel::Op;
use serde_json::json;

use crate::common::{Lab, Script, Trouble};
use crate::outages::faulty::{once, troubled};

fn id(key: &str) -> RequestId {
    RequestId::new("test", Name::new(key).unwrap(), Fingerprint::of([key]))
}

async fn count(lab: &Lab) -> usize {
    lab.list(&Filter::default(), None, 100)
        .await
        .unwrap()
        .items
        .len()
}

on_every_store! {
    async fn a_call_of_a_request_is_carried_out_once_whatever_is_lost(lab: Lab) {
        // rule 1.5: shared with others, or alone.
        let mut made = 0;
        for trouble in [Trouble::AnswerLost, Trouble::Lost, Trouble::Away, Trouble::Conflict] {
            let abide = troubled(&lab, once(trouble, |op| matches!(op, Op::Once(_)))).await;
            let key = format!("{trouble:?}");
            let one = abide.once(id(&key));
            let started = one.start(Script::any(), json!(0)).await.unwrap();
            let reserved = one.reserve(Script::any(), format!("r-{key}")).await.unwrap();
            made += 2;
            assert_eq!(count(&lab).await, made, "{trouble:?}");
            let again = abide.once(id(&key));
            assert_eq!(again.start(Script::any(), json!(0)).await.unwrap().id(), started.id(), "{trouble:?}");
            assert_eq!(again.reserve(Script::any(), format!("r-{key}")).await.unwrap().id(), reserved.id(), "{trouble:?}");
            assert!(again.is_replayed(), "{trouble:?}");
            assert_eq!(count(&lab).await, made, "{trouble:?}");
        }
    }
}

on_every_store! {
    async fn a_request_that_may_have_been_done_is_never_reported_as_not_done(lab: Lab) {
        // rule 1.5: the first answer is lost, and then the database is away for longer than any caller waits.
        for alone in [false, true] {
            let tries = Arc::new(AtomicUsize::new(0));
            let counted = tries.clone();
            let store = crate::common::Faulty::new(lab.store().await, move |ops: &[Op]| {
                let is = ops.iter().any(|op| matches!(op, Op::Once(_)));
                is.then(|| match counted.fetch_add(1, Ordering::SeqCst) {
                    0 => Trouble::AnswerLost,
                    _ => Trouble::Away,
                })
            });
            let abide: Abide = Abide::options().patience(millis(3_000)).on(store);
            let call = abide.once(id(&format!("alone-{alone}")));
            let error = match alone {
                false => call.start(Script::any(), json!(0)).await.err().map(|error| error.to_string()),
                true => call.cancel("missing", "no").await.err().map(|error| error.to_string()),
            };
            let error = error.unwrap();
            assert!(error.contains("unknown") && !error.contains("nothing was written"), "{error}");
            assert!(tries.load(Ordering::SeqCst) > 1, "it was tried again");
        }
    }
}
