//! Odd keys, odd bodies, odd values.

use serde_json::{Value, json};

use crate::common::answer;
use crate::http::on_both;

/// A text as one segment of a path.
fn segment(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

on_both! {
    async fn a_key_may_be_any_text(server) {
        // rule 2.2
        for key in ["a/b", "a%2Fb", "100%", "🛒:ключ", "a b+c", "?x=1#y", "42a", "٣٤", "é".repeat(127).as_str()] {
            let (status, started) = server.post("/v1/instances", &json!({"machine": "m/1 ü", "key": key})).await;
            assert_eq!(status, 201, "{key}: {started}");
            let path = format!("/v1/instances/{}", segment(key));
            let (status, seen) = server.get(&path).await;
            assert_eq!((status, &seen["id"], &seen["key"]), (200, &started["id"], &json!(key)), "{key}: {seen}");
            let (status, sent) = server.post(&format!("{path}/signals/{}", segment("näme/✓")), &json!({})).await;
            assert_eq!((status, &sent["key"]), (202, &json!(key)), "{key}: {sent}");
            assert_eq!(server.get(&format!("{path}/signals")).await.1["items"][0]["name"], "näme/✓");
            let (_, found) = server.get(&format!("/v1/instances?key_prefix={}", segment(key))).await;
            assert_eq!(found["items"].as_array().unwrap().len(), 1, "{key}: {found}");
        }
        for (target, expected) in [("99999999999999999999", 404), ("0", 404), ("%0A", 422), ("%FF", 400), (&segment(&"x".repeat(256)), 422)] {
            let (status, body) = server.get(&format!("/v1/instances/{target}")).await;
            assert_eq!(status, expected, "{target}: {body}");
        }
    }

    async fn json_comes_back_as_it_was_sent(server) {
        let odd = r#"{"n": 1.50, "big": 123456789012345678901234567890, "e": 1e400, "u": "\u0000\ud83d\ude00", "dup": [null, {}, [], "", -0]}"#;
        let post = |path: &str, body: String| {
            server.http.post(server.at(path)).header("content-type", "application/json").body(body)
        };
        let (status, body) = answer(post("/v1/instances", format!(r#"{{"machine": "m", "key": "k", "state": {odd}}}"#))).await;
        assert_eq!(status, 201, "{body}");
        let text = server.http.get(server.at("/v1/instances/k")).send().await.unwrap().text().await.unwrap();
        assert!(text.contains(odd), "{text}");
        let (status, body) = answer(post("/v1/instances/k/signals/go", format!(r#"{{"payload": {odd}}}"#))).await;
        assert_eq!(status, 202, "{body}");
        let nested = |levels: usize| format!("{}1{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let deep = nested(128);
        let (status, body) = answer(post("/v1/instances", format!(r#"{{"machine": "m", "key": "deep", "state": {deep}}}"#))).await;
        assert_eq!(status, 201, "{body}");
        let text = server.http.get(server.at("/v1/instances/deep")).send().await.unwrap().text().await.unwrap();
        assert!(text.contains(&deep));
        // rule 16.3: what workers in other languages cannot read is refused at every entrance.
        let (deeper, deepest) = (nested(129), nested(10_000));
        for (path, body, met) in [
            ("/v1/instances", format!(r#"{{"machine": "m", "state": {deeper}}}"#), 129),
            ("/v1/instances", format!(r#"{{"machine": "m", "state": {deepest}}}"#), 10_000),
            ("/v1/instances/k/signals/go", format!(r#"{{"payload": {deep}}}"#), 129),
            ("/v1/instances/k/signals/go", format!(r#"{{"arguments": {{"a": {deepest}}}}}"#), 10_001),
            ("/v1/events", format!(r#"{{"type": "t", "payload": {deeper}}}"#), 129),
        ] {
            let (status, body) = answer(post(path, body)).await;
            assert_eq!((status, &body["limit"], &body["most"]), (413, &json!("json_depth"), &json!(128)), "{path}: {body}");
            assert_eq!(body["met"], met, "{path}: {body}");
        }
        for payload in [json!(null), json!(""), json!({}), json!([]), json!(false)] {
            let (status, sent) = server.post("/v1/instances/k/signals/p", &json!({"payload": payload})).await;
            assert_eq!(status, 202, "{sent}");
            let (_, records) = server.get("/v1/instances/k/signals?limit=1").await;
            assert_eq!(records["items"][0]["arguments"], json!([payload]), "{records}");
        }
        let (_, records) = server.post("/v1/instances/k/signals/p", &json!({"arguments": {"a": 1}})).await;
        assert!(records["command_id"].is_i64());
        let (_, records) = server.get("/v1/instances/k/signals?limit=1").await;
        assert_eq!(records["items"][0]["arguments"], json!([{"a": 1}]), "rule 8.4: never guessed to be named");
    }

    async fn what_is_too_large_names_its_limit(server) {
        // rule 16.3
        let huge = "x".repeat((1 << 20) + 1);
        // Which limit it is, what it allows and what was met, as fields and in the text.
        let names_limit = |body: &Value, text: &str, limit: &str, most: usize| {
            let met = huge.len() + 2;
            assert_eq!(json!([body["limit"], body["most"], body["met"]]), json!([limit, most, met]), "{body}");
            let text = body[text].as_str().unwrap();
            assert!(text.contains(&format!("{met} is over the limit {limit} of {most}")), "{text}");
        };
        let (status, body) = server.post("/v1/instances", &json!({"machine": "m", "state": huge})).await;
        assert_eq!((status, &body["reason"]), (413, &json!("limit_exceeded")), "{body}");
        names_limit(&body, "detail", "state_bytes", 1 << 20);
        let (status, body) = server.post("/v1/events", &json!({"type": "t", "payload": huge})).await;
        assert_eq!(status, 413, "{body}");
        names_limit(&body, "detail", "payload_bytes", 1 << 20);
        let (_, body) = server.post("/v1/instances/batch", &json!({"instances": [{"machine": "m", "state": huge}, {"machine": "m"}]})).await;
        assert_eq!((&body["results"][0]["reason"], body["results"][1]["id"].is_i64()), (&json!("limit_exceeded"), true), "{body}");
        names_limit(&body["results"][0], "error", "state_bytes", 1 << 20);
        assert_eq!(body["results"][1]["limit"], Value::Null);
        let (_, body) = server.post("/v1/events/batch", &json!({"events": [{"type": "t", "payload": huge}, {"type": "t", "payload": 1}, {}]})).await;
        let reasons: Vec<&Value> = body["results"].as_array().unwrap().iter().map(|one| &one["reason"]).collect();
        assert_eq!(json!(reasons), json!(["limit_exceeded", null, "unprocessable"]), "{body}");
        names_limit(&body["results"][0], "error", "payload_bytes", 1 << 20);
        assert_eq!(body["results"][1]["limit"], Value::Null);
        for (path, limit, met, most) in [("/v1/instances?limit=1001", "limit", 1001, 1000), ("/v1/instances/1/result?wait_ms=60001", "wait_ms", 60_001, 60_000)] {
            let (status, body) = server.get(path).await;
            assert_eq!((status, json!([body["limit"], body["most"], body["met"]])), (400, json!([limit, most, met])), "{body}");
        }
    }

    async fn a_body_that_is_not_json_is_refused_as_such(server) {
        server.post("/v1/instances", &json!({"machine": "m", "key": "k"})).await;
        let calls = [
            ("POST", "/v1/instances"), ("POST", "/v1/instances/batch"), ("POST", "/v1/instances/k/signals/a"),
            ("POST", "/v1/signal-with-start"), ("POST", "/v1/instances/k/updates/a"), ("POST", "/v1/instances/k/cancel"),
            ("POST", "/v1/instances/k/restart"), ("POST", "/v1/instances/k/repair"), ("POST", "/v1/events"),
            ("POST", "/v1/events/batch"), ("PUT", "/v1/machines/m/1"), ("PUT", "/v1/graphs/g"),
        ];
        for (method, path) in calls {
            let request = |body: &str, kind: &str| {
                let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
                answer(server.http.request(method, server.at(path)).header("content-type", kind).body(body.to_owned()))
            };
            for (body, kind, expected) in [
                ("{", "application/json", 400),
                ("[]", "application/json", 422),
                ("null", "application/json", 422),
                ("\u{0}", "application/json", 400),
                (r#"{"no such field": 1}"#, "application/json", 422),
                ("{}", "text/plain", 415),
            ] {
                let (status, answer) = request(body, kind).await;
                assert_eq!(status, expected, "{method} {path} {body:?}: {answer}");
                assert!(answer["detail"].is_string(), "{answer}");
                if body.contains("no such field") {
                    assert!(answer["detail"].as_str().unwrap().contains("no such field"), "{method} {path}: {answer}");
                }
            }
        }
        assert_eq!(server.get("/v1/instances/k").await.1["status"], "runnable", "nothing of it was done");
        let (status, body) = server.get("/v1/nowhere").await;
        assert_eq!((status, body["status"].as_u64()), (404, Some(404)), "{body}");
        let wrong = answer(server.http.delete(server.at("/v1/instances"))).await;
        assert_eq!((wrong.0, wrong.1["type"].as_str()), (405, Some("/problems/method_not_allowed")));
        let nothing: Value = server.get("/v1/instances/k/nothing").await.1;
        assert_eq!(nothing["status"], 404);
    }
}
