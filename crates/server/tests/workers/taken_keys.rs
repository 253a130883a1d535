//! Signals, cancels and leases that would bring an instance under a key which another holds.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::workers::kit::{instance, on_both, start, until, worker};

/// Sooner than anything that is tried again until the request times out.
const PROMPTLY: Duration = Duration::from_secs(5);

on_both! {
    async fn a_signal_that_wakes_into_a_taken_key_is_answered_at_once(server: Server) {
        // rules 2.8 and 7.1: it was answered 503 after ten seconds, and so was every other that came with it.
        let worker = worker(&server);
        let scoped = json!({"machine": "m", "key": "k", "scope": ["runnable"]});
        let first = start(&server, scoped.clone()).await;
        let claim = worker.one().await;
        worker.done(&claim, json!({"wait": {"signals": ["go"], "next": "woken", "state": null}})).await;
        let holder = start(&server, scoped).await;
        let began = Instant::now();
        let (status, answer) = server.post(&format!("/v1/instances/{first}/signals/go"), &json!({})).await;
        assert_eq!((status, &answer["outcome"]), (202, &json!("signal_received")), "{answer}");
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
        let ended = instance(&server, first).await;
        let error = format!("key \"k\" is taken by instance {holder}");
        assert_eq!((&ended["status"], &ended["last_error"]), (&json!("failed"), &json!(error)));
        let (status, signals) = server.get(&format!("/v1/instances/{first}/signals")).await;
        assert_eq!((status, &signals["items"][0]["status"]), (200, &json!("discarded")), "{signals}");
    }

    async fn a_cancel_into_a_taken_key_is_done_at_once(server: Server) {
        // rules 2.8 and 11.1
        let scoped = json!({"machine": "m", "key": "k", "scope": ["cancelled"]});
        let began = Instant::now();
        for id in [start(&server, scoped.clone()).await, start(&server, scoped.clone()).await] {
            let (status, answer) = server.post(&format!("/v1/instances/{id}/cancel"), &json!({})).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(instance(&server, id).await["status"], "cancelled");
        }
        assert!(began.elapsed() < PROMPTLY, "{:?}", began.elapsed());
    }

    async fn a_lapsed_claim_goes_back_while_a_successor_waits(server: Server) {
        // rules 2.8 and 5.3: no timer of the store fired any more.
        let silent = worker(&server).lease_ms(1_000);
        let scoped = json!({"machine": "m", "key": "k", "scope": ["scheduled", "runnable"]});
        let first = start(&server, scoped.clone()).await;
        silent.one().await;
        let second = start(&server, scoped).await;
        let timer = start(&server, json!({"machine": "n", "delay_ms": 1_200})).await;
        let back = until(&server, first, "runnable").await;
        assert_eq!((&back["attempt"], &back["scope"]), (&json!(1), &json!([])));
        until(&server, timer, "runnable").await;
        assert_eq!(instance(&server, second).await["scope"], json!(["scheduled", "runnable"]));
    }
}
