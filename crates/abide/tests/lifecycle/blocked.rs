//! Steps that block every thread of the runtime that they run on.

use std::sync::{Arc, Condvar, Mutex};

use abide::done;
use abide::time::{Timestamp, secs};
use serde_json::json;

use crate::common::{Lab, Script, eventually};
use crate::lifecycle::quick;

/// Blocks the threads that come to it until the test lets them go. Clones are the same.
#[derive(Clone, Default)]
struct Block(Arc<(Mutex<(usize, bool)>, Condvar)>);

impl Block {
    fn hold(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.0 += 1;
        while !state.1 {
            state = changed.wait(state).unwrap();
        }
    }

    fn held(&self) -> usize {
        self.0.0.lock().unwrap().0
    }

    fn let_go(&self) {
        self.0.0.lock().unwrap().1 = true;
        self.0.1.notify_all();
    }
}

/// Until when the worker of that name is believed to live.
async fn lease_of(lab: &Lab, name: &str) -> Timestamp {
    let workers = lab.workers().await.unwrap();
    let worker = workers.iter().find(|worker| worker.name.as_str() == name);
    worker.expect("the worker lives").lease_until
}

on_every_store! {
    async fn a_step_that_blocks_the_runtime_keeps_its_claim(lab: Lab) {
        // rule 6.4: leases were renewed by a task of the runtime that the steps blocked, and ran out.
        let lease = secs(2);
        let block = Block::default();
        let blocks = block.clone();
        let script = Script::new(move |_, ctx| {
            blocks.hold();
            done(json!(["blocked", ctx.attempt()]))
        });
        // Its runtime has one thread, which the step blocks.
        let blocked = lab.killable(move |engine| engine.name("blocked").lease(lease).machine(script)).await;
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        eventually("the runtime to be blocked", async || block.held() == 1).await;
        let heir = lab.engine().name("heir").machine(quick("heir")).start().await.unwrap();
        let from = lease_of(&lab, "blocked").await;
        eventually("the lease to be renewed long after it would have run out", async || {
            lease_of(&lab, "blocked").await.since(from) > lease * 2
        })
        .await;
        eventually("the blocked runtime to be noticed", async || blocked.stats().blocked > 0).await;
        assert_eq!(blocked.stats().blocked, 1, "it is logged once");
        block.let_go();
        assert_eq!(lab.came_to(&order).await, json!(["blocked", 0]));
        assert_eq!(heir.stats().reclaimed, 0);
        blocked.die().await;
        heir.shutdown().await;
    }
}

on_every_store! {
    async fn an_engine_that_was_shut_down_leaves_no_lease_behind(lab: Lab) {
        // rules 6.4 and 6.7: the thread that renews it has ended, and brings the worker back no more.
        let engine = lab.engine().name("w").lease(secs(1)).machine(quick("it")).start().await.unwrap();
        let order = lab.start(Script::any(), json!(1)).await.unwrap();
        lab.came_to(&order).await;
        engine.shutdown().await;
        lab.workers_are(0).await;
    }
}
