//! Cancelling parents and children.

use abide::client::new_start;
use abide::{Status, done};
use serde_json::json;

use crate::common::{At, Lab, Script};
use crate::operating::GO;

/// A parent of two, each of which has two that wait; it ends with how its children ended.
fn family() -> Script {
    Script::new(|at, ctx| match (at, ctx.state().as_u64().unwrap()) {
        (At::One, 0) => ctx.wait_for(GO).then(At::Two),
        (At::One, depth) => {
            let key = ctx.key().unwrap().to_string();
            let child = |n| new_start(Script::any(), json!(depth - 1)).key(format!("{key}.{n}"));
            ctx.spawn([child(1), child(2)]).then(At::Three)
        }
        (At::Two, _) => done(json!("leaf")),
        (At::Three, _) => done(json!(
            ctx.children()
                .iter()
                .map(|child| child.status.name())
                .collect::<Vec<_>>()
        )),
    })
}

/// Waits until the leaves wait.
async fn grown(lab: &Lab) {
    lab.start(Script::any(), json!(2)).key("p").await.unwrap();
    for leaf in ["p.1.1", "p.1.2", "p.2.1", "p.2.2"] {
        crate::common::eventually("a leaf to wait", async || {
            lab.get(leaf)
                .await
                .unwrap()
                .is_some_and(|row| row.status == Status::AwaitingSignal)
        })
        .await;
    }
}

async fn statuses(lab: &Lab) -> Vec<&'static str> {
    let mut found = Vec::new();
    for key in ["p", "p.1", "p.2", "p.1.1", "p.1.2", "p.2.1", "p.2.2"] {
        found.push(lab.get(key).await.unwrap().unwrap().status.name());
    }
    found
}

on_every_store! {
    async fn a_cascade_takes_all_that_descends_in_one_commit(lab: Lab) {
        // rule 11.1
        let engine = lab.engine().machine(family()).start().await.unwrap();
        grown(&lab).await;
        let cancelled = lab.cancel("p", "not wanted").await.unwrap();
        assert_eq!(cancelled.children, 6);
        assert_eq!(statuses(&lab).await, ["cancelled"; 7]);
        for key in ["p.1", "p.1.2"] {
            let row = lab.get(key).await.unwrap().unwrap();
            assert_eq!(row.last_error.as_deref(), Some("not wanted"));
        }
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn children_that_are_left_go_on(lab: Lab) {
        // rule 11.1
        let engine = lab.engine().machine(family()).start().await.unwrap();
        grown(&lab).await;
        let cancelled = lab.cancel("p", "not wanted").leave_children().await.unwrap();
        assert_eq!(cancelled.children, 0);
        for leaf in ["p.1.1", "p.1.2", "p.2.1", "p.2.2"] {
            lab.signal(leaf, GO, &()).await.unwrap();
        }
        for child in ["p.1", "p.2"] {
            let child = lab.get(child).await.unwrap().unwrap();
            assert_eq!(lab.ended(child.id).await.result.unwrap().as_str(), r#"["done","done"]"#);
        }
        assert_eq!(statuses(&lab).await, ["cancelled", "done", "done", "done", "done", "done", "done"]);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_barrier_sees_a_cancelled_child_as_an_end(lab: Lab) {
        // rules 10.2, 10.3 and 11.1
        let engine = lab.engine().machine(family()).start().await.unwrap();
        grown(&lab).await;
        // A whole branch, and one leaf of the other.
        assert_eq!(lab.cancel("p.1", "pruned").await.unwrap().children, 2);
        lab.cancel("p.2.1", "pruned").await.unwrap();
        lab.signal("p.2.2", GO, &()).await.unwrap();
        let parent = lab.get("p").await.unwrap().unwrap();
        assert_eq!(lab.ended(parent.id).await.result.unwrap().as_str(), r#"["cancelled","done"]"#);
        let other = lab.get("p.2").await.unwrap().unwrap();
        assert_eq!(other.result.unwrap().as_str(), r#"["cancelled","done"]"#);
        engine.shutdown().await;
    }
}
