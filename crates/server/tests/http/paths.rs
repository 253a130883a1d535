//! Methods and paths: HEAD, a wrong method, a slash too many, and keys that must be percent-encoded.

use serde_json::{Value, json};

use crate::common::server;
use crate::http::on_both;

#[tokio::test]
async fn head_is_answered_as_get_without_the_body() {
    let server = server().start();
    server
        .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
        .await;
    let (_, api) = server.get("/openapi.json").await;
    let paths = api["paths"].as_object().unwrap().iter();
    let gets = paths.filter(|(path, item)| item.get("get").is_some() && *path != "/v1/stream");
    let mut seen = 0;
    for (path, _) in gets {
        let path = path
            .replace("{target}", "k")
            .replace("{id}", "1")
            .replace("{name}", "g");
        let got = server.http.get(server.at(&path)).send().await.unwrap();
        let head = server.http.head(server.at(&path)).send().await.unwrap();
        assert_eq!(head.status(), got.status(), "{path}");
        let kind = |response: &reqwest::Response| response.headers().get("content-type").cloned();
        assert_eq!(kind(&head), kind(&got), "{path}");
        assert_eq!(head.bytes().await.unwrap().len(), 0, "{path}");
        seen += 1;
    }
    assert!(seen > 15, "{seen}");
}

#[tokio::test]
async fn a_wrong_method_is_answered_with_those_allowed() {
    let server = server().start();
    for (method, path, allowed) in [
        ("DELETE", "/v1/instances", vec!["GET", "HEAD", "POST"]),
        ("GET", "/v1/instances/k/cancel", vec!["POST"]),
        ("PATCH", "/v1/graphs/g", vec!["GET", "HEAD", "PUT"]),
        ("PUT", "/v1/workers/claim", vec!["POST"]),
        ("POST", "/healthz", vec!["GET", "HEAD"]),
        ("GET", "/rpc/v1", vec!["POST"]),
    ] {
        let parsed = method.parse::<reqwest::Method>().unwrap();
        let response = server
            .http
            .request(parsed, server.at(path))
            .send()
            .await
            .unwrap();
        let allow = response
            .headers()
            .get("allow")
            .map(|allow| allow.to_str().unwrap().to_owned());
        assert_eq!(response.status(), 405, "{method} {path}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let allow = allow.unwrap_or_default();
        let mut methods: Vec<&str> = allow.split(',').map(str::trim).collect();
        methods.sort_unstable();
        assert_eq!(methods, allowed, "{method} {path}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(
            (&problem["type"], &problem["status"]),
            (&json!("/problems/method_not_allowed"), &json!(405))
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(method),
            "{problem}"
        );
    }
}

#[tokio::test]
async fn a_trailing_slash_is_named_in_the_answer() {
    let server = server().start();
    for path in ["/v1/instances/", "/v1/instances/k/history/", "/healthz/"] {
        let (status, problem) = server.get(path).await;
        let detail = problem["detail"].as_str().unwrap();
        assert_eq!(
            (status, &problem["type"]),
            (404, &json!("/problems/not_found")),
            "{problem}"
        );
        assert!(
            detail.contains(&format!("leave the slash at the end of {path} out")),
            "{detail}"
        );
    }
    let (status, problem) = server.post("/v1/events/", &json!({"type": "t"})).await;
    assert_eq!(status, 404, "{problem}");
    // Of a key it is a part, when it is encoded.
    server
        .post("/v1/instances", &json!({"machine": "m", "key": "a/"}))
        .await;
    assert_eq!(server.get("/v1/instances/a%2F").await.0, 200);
    assert_eq!(server.get("/v1/instances/a/").await.0, 404);
}

on_both! {
    async fn a_key_is_percent_encoded_and_what_cannot_be_one_is_refused_everywhere(server) {
        // rule 2.2
        for (key, path) in [("a/b", "a%2Fb"), ("a b", "a%20b"), ("a+b", "a+b"), ("ключ", "%D0%BA%D0%BB%D1%8E%D1%87"), ("100%", "100%25"), ("a%2Fb", "a%252Fb")] {
            let (status, started) = server.post("/v1/instances", &json!({"machine": "m", "key": key})).await;
            assert_eq!(status, 201, "{key}: {started}");
            for rest in ["", "/history", "/signals", "/updates", "/children", "/runs"] {
                let (status, seen) = server.get(&format!("/v1/instances/{path}{rest}")).await;
                assert_eq!(status, 200, "{key}{rest}: {seen}");
            }
            let (_, seen) = server.get(&format!("/v1/instances/{path}")).await;
            assert_eq!((&seen["id"], &seen["key"]), (&started["id"], &json!(key)));
        }
        // No database has to see what it could not keep.
        for path in [
            "/v1/instances/%00", "/v1/instances/a%00b/history", "/v1/instances/%00/signals",
            "/v1/instances?machine=%00", "/v1/instances?queue=a%00", "/v1/instances?waiting_for=%00", "/v1/instances?parent=%00",
            "/v1/signals?key=%00", "/v1/signals?name=%00", "/v1/events?type=%00", "/v1/waits?name=%00", "/v1/waits?instance=%00",
            "/v1/graphs/%00", "/v1/stream?instance=%00",
        ] {
            let (status, problem) = server.get(path).await;
            assert!(matches!(status, 400 | 404 | 422), "{path}: {status} {problem}");
            assert!(problem["detail"].is_string(), "{path}: {problem}");
        }
        for path in ["/v1/instances?key_prefix=%00", "/v1/waits?key_prefix=%00"] {
            let (status, none) = server.get(path).await;
            assert_eq!((status, &none["items"]), (200, &json!([])), "{path}: no key begins so");
        }
        for path in ["/v1/instances/%00/signals/go", "/v1/instances/a%2Fb/signals/%00", "/v1/instances/a%2Fb/updates/%00", "/v1/instances/%00/cancel"] {
            let (status, problem) = server.post(path, &json!({})).await;
            assert!(matches!(status, 400 | 404 | 422), "{path}: {status} {problem}");
        }
        for path in ["/v1/machines/%00/1", "/v1/graphs/%00"] {
            let (status, problem) = server.put(path, &json!({"steps": []})).await;
            assert_eq!(status, 422, "{path}: {problem}");
        }
    }
}
