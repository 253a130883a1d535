//! Mistakes in bodies, queries and paths: each answer has the path, the value, and what is expected, in JSON terms.

use serde_json::{Value, json};

use crate::common::{Server, answer, server};

/// Words of a Rust program, which a writer of JSON does not know.
const OURS: [&str; 15] = [
    "struct",
    "variant",
    "sequence",
    " map",
    "line 1",
    "column",
    "u32",
    "u64",
    "usize",
    "i64",
    "unit",
    "integer `",
    "Request",
    "invalid type",
    "newtype",
];

/// The detail of the refusal of a body.
async fn refusal(server: &Server, method: &str, path: &str, body: &Value) -> String {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let (status, answer) = answer(server.http.request(method, server.at(path)).json(body)).await;
    assert_eq!(status, 422, "{path} {body}: {answer}");
    answer["detail"].as_str().unwrap().to_owned()
}

fn is_plain(detail: &str) {
    let ours = OURS.iter().find(|word| detail.contains(**word));
    assert_eq!(ours, None, "{detail}");
}

#[tokio::test]
async fn a_mistake_in_a_body_is_reported_by_its_path() {
    let server = server().start();
    server
        .post("/v1/instances", &json!({"machine": "m", "key": "k"}))
        .await;
    let claim = |change: Value| {
        let mut body =
            json!({"worker": "w", "queue": "q", "machines": [{"name": "m", "version": 1}]});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    let step = |name: &str, value: Value| json!({"signals": [{"name": "paid", "parameters": [{"name": "a", name: value}]}]});
    let start = "/v1/instances";
    let signal = "/v1/instances/k/signals/go";
    let update = "/v1/instances/k/updates/go";
    let cancel = "/v1/instances/k/cancel";
    let machine = "/v1/machines/m/1";
    let calls = [
        (
            "POST",
            start,
            json!({"machine": 5}),
            "`machine` is 5: expected a string",
        ),
        (
            "POST",
            start,
            json!({"machine": ""}),
            "`machine`: \"\" cannot be a name or a key: it is empty",
        ),
        (
            "POST",
            start,
            json!({"machine": ["m"]}),
            "`machine` is a list: expected a string",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "version": "1"}),
            "`version` is \"1\": expected a whole number from 0 to 4294967295",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "version": 1.5}),
            "`version` is 1.5: expected a whole number from 0 to 4294967295",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "priority": 40_000}),
            "`priority` is 40000: expected a whole number from -32768 to 32767",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "reserve": "yes"}),
            "`reserve` is \"yes\": expected true or false",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "delay_ms": -1}),
            "`delay_ms` is -1: expected a whole number, 0 or more",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "due_at": "tomorrow"}),
            "`due_at`: \"tomorrow\" is not a time as RFC 3339 writes it, like 2026-11-15T08:00:00Z",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "scope": "all"}),
            "`scope` is \"all\": expected a list",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "scope": ["asleep"]}),
            "`scope[0]` is \"asleep\": expected one of `reserved`, `scheduled`,",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "scope": [7]}),
            "`scope[0]` is 7: expected one of `reserved`, `scheduled`,",
        ),
        (
            "POST",
            start,
            json!({"machine": "m", "colour": "red"}),
            "unknown field `colour`: expected one of `machine`, `graph`,",
        ),
        (
            "POST",
            "/v1/instances/batch",
            json!({}),
            "`instances` is missing",
        ),
        (
            "POST",
            "/v1/instances/batch",
            json!({"instances": {}}),
            "`instances` is an object: expected a list",
        ),
        (
            "POST",
            "/v1/instances/batch",
            json!({"instances": null}),
            "`instances` is null: expected a list",
        ),
        (
            "POST",
            signal,
            json!({"payload": 1, "dedup_key": 5}),
            "`dedup_key` is 5: expected a string",
        ),
        (
            "POST",
            signal,
            json!({"arguments": 5}),
            "`arguments` is 5: expected a list, by position, or an object, by name",
        ),
        (
            "POST",
            signal,
            json!({"payload": 1, "arguments": []}),
            "give a `payload` or `arguments`, not both",
        ),
        (
            "POST",
            signal,
            json!({"hold_for_ms": "1s"}),
            "`hold_for_ms` is \"1s\": expected a whole number, 0 or more",
        ),
        (
            "POST",
            "/v1/signal-with-start",
            json!({"name": "go"}),
            "`start` is missing",
        ),
        (
            "POST",
            "/v1/signal-with-start",
            json!({"start": {"machine": "m"}}),
            "`name` is missing",
        ),
        (
            "POST",
            "/v1/signal-with-start",
            json!({"start": "m", "name": "go"}),
            "`start` is \"m\": expected an object",
        ),
        (
            "POST",
            "/v1/signal-with-start",
            json!({"start": {"machin": "m"}, "name": "go"}),
            "unknown field `start.machin`: expected one of `machine`,",
        ),
        (
            "POST",
            "/v1/signal-with-start",
            json!({"start": {"machine": 1}, "name": "go"}),
            "`start.machine` is 1: expected a string",
        ),
        (
            "POST",
            update,
            json!({"wait_for": "ever"}),
            "`wait_for` is \"ever\": expected `accepted` or `completed`",
        ),
        (
            "POST",
            update,
            json!({"wait_for": 5}),
            "`wait_for` is 5: expected `accepted` or `completed`",
        ),
        (
            "POST",
            update,
            json!({"wait_for": null}),
            "`wait_for` is null: expected `accepted` or `completed`",
        ),
        (
            "POST",
            update,
            json!({"wait_for": {"accepted": 1}}),
            "`wait_for.accepted` is 1: expected the name alone, as a string",
        ),
        (
            "POST",
            update,
            json!({"wait_ms": "long"}),
            "`wait_ms` is \"long\": expected a whole number, 0 or more",
        ),
        (
            "POST",
            cancel,
            json!({"children": "kill"}),
            "`children` is \"kill\": expected `cascade` or `leave`",
        ),
        (
            "POST",
            cancel,
            json!({"children": true}),
            "`children` is true: expected `cascade` or `leave`",
        ),
        (
            "POST",
            cancel,
            json!({"force": 1}),
            "`force` is 1: expected true or false",
        ),
        (
            "POST",
            cancel,
            json!({"reason": {}}),
            "`reason` is an object: expected a string",
        ),
        (
            "POST",
            "/v1/instances/k/restart",
            json!({"step": 5}),
            "`step` is 5: expected a string",
        ),
        (
            "POST",
            "/v1/instances/k/repair",
            json!({"now": true}),
            "unknown field `now`: expected none",
        ),
        ("POST", "/v1/events", json!({}), "`type` is missing"),
        (
            "POST",
            "/v1/events",
            json!({"type": null}),
            "`type` is null: expected a string",
        ),
        (
            "POST",
            "/v1/events/batch",
            json!({"events": 5}),
            "`events` is 5: expected a list",
        ),
        (
            "PUT",
            machine,
            json!({"signals": ["paid"]}),
            "`signals[0]` is \"paid\": expected an object",
        ),
        (
            "PUT",
            machine,
            json!({"signals": {"paid": []}}),
            "`signals` is an object: expected a list",
        ),
        (
            "PUT",
            machine,
            json!({"signals": [{"nam": "paid"}]}),
            "unknown field `signals[0].nam`: expected `name` or `parameters`",
        ),
        (
            "PUT",
            machine,
            json!({"signals": [{}]}),
            "`signals[0].name` is missing",
        ),
        (
            "PUT",
            machine,
            json!({"updates": [{"name": "a", "parameters": {}}]}),
            "`updates[0].parameters` is an object: expected a list",
        ),
        (
            "PUT",
            machine,
            step("nullable", json!("yes")),
            "`signals[0].parameters[0].nullable` is \"yes\": expected true or false",
        ),
        (
            "PUT",
            machine,
            step("colour", json!(1)),
            "unknown field `signals[0].parameters[0].colour`: expected one of `name`, `type`,",
        ),
        (
            "PUT",
            machine,
            json!({"retry": {"max_attempts": 3}}),
            "`retry.delay_ms` is missing",
        ),
        (
            "PUT",
            machine,
            json!({"retry": 3}),
            "`retry` is 3: expected an object",
        ),
        (
            "PUT",
            machine,
            json!({"retry": {"max_attempts": 3, "delay_ms": 1, "factor": "2"}}),
            "`retry.factor` is \"2\": expected a number",
        ),
        (
            "PUT",
            machine,
            json!({"history": "off"}),
            "`history` is \"off\": expected true or false",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": {}}),
            "`steps` is an object: expected a list",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "after": "b", "task": "t"}]}),
            "step \"a\": `after` is \"b\": expected a list",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "sleep": 5}]}),
            "step \"a\": `sleep` is 5: expected an object",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"task": "t"}]}),
            "step 1: it has no name",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [17]}),
            "step 1: it is 17: expected an object",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "wait_for_event": {"event": "e", "timeout_ms": 1, "match": {"left": "x", "op": "like", "right": 1}}}]}),
            "step \"a\": `wait_for_event.match.op` is \"like\": expected one of `eq`,",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "wait_for_event": {"event": "e", "timeout_ms": 1, "match": [{"left": "x", "op": "eq"}]}}]}),
            "`wait_for_event.match[0].right` is missing",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "wait_for_event": {"event": "e", "timeout_ms": 1, "match": "x"}}]}),
            "`wait_for_event.match` is \"x\": expected a condition, which is an object, or a list of them",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "graph": {"name": "b", "steps": [{"name": 1}]}}]}),
            "its graph: step 1: `name` is 1: expected a string",
        ),
        (
            "PUT",
            "/v1/graphs/g",
            json!({"steps": [{"name": "a", "graph": 7}]}),
            "`graph` is 7: expected the name of a graph, or a graph, which is an object",
        ),
        (
            "POST",
            "/v1/workers/claim",
            json!({}),
            "`worker` is missing",
        ),
        (
            "POST",
            "/v1/workers/claim",
            claim(json!({"machines": "m"})),
            "`machines` is \"m\": expected a list",
        ),
        (
            "POST",
            "/v1/workers/claim",
            claim(json!({"machines": ["m"]})),
            "`machines[0]` is \"m\": expected an object",
        ),
        (
            "POST",
            "/v1/workers/claim",
            claim(json!({"machines": [{"name": "m"}]})),
            "`machines[0].version` is missing",
        ),
        (
            "POST",
            "/v1/workers/claim",
            claim(json!({"machines": [{"name": "m", "version": "1"}]})),
            "`machines[0].version` is \"1\": expected a whole number from 0 to 4294967295",
        ),
        (
            "POST",
            "/v1/workers/claim",
            claim(json!({"limit": null, "wait_ms": -5})),
            "`wait_ms` is -5: expected a whole number, 0 or more",
        ),
        (
            "POST",
            "/v1/workers/commit",
            json!({"worker": "w", "outcomes": [{"claim": "c"}]}),
            "`outcomes[0].outcome` is missing",
        ),
        (
            "POST",
            "/v1/workers/commit",
            json!({"worker": "w", "outcomes": [{"claim": 7, "outcome": {}}]}),
            "`outcomes[0].claim` is 7: expected a string",
        ),
        (
            "POST",
            "/v1/workers/heartbeat",
            json!({"worker": "w", "claims": [{}]}),
            "`claims[0]` is an object: expected a string",
        ),
    ];
    let mut wrong = Vec::new();
    for (method, path, body, expected) in calls {
        let detail = refusal(&server, method, path, &body).await;
        if !detail.contains(expected) {
            wrong.push(format!("{path} {body}: {detail:?} is not {expected:?}"));
        }
        is_plain(&detail);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let long = refusal(
        &server,
        "POST",
        start,
        &json!({"machine": "m", "version": "x".repeat(5_000)}),
    )
    .await;
    assert!(long.len() < 300, "{long}");
}

#[tokio::test]
async fn a_field_that_is_given_twice_and_a_body_that_is_not_json_are_reported() {
    let server = server().start();
    let post = |body: &'static str| {
        answer(
            server
                .http
                .post(server.at("/v1/instances"))
                .header("content-type", "application/json")
                .body(body),
        )
    };
    let (status, twice) = post(r#"{"machine": "a", "machine": "b"}"#).await;
    assert_eq!(
        (status, twice["detail"].as_str()),
        (422, Some("invalid request body: `machine` is given twice"))
    );
    let (status, broken) = post("{\"machine\": \"a\",\n}").await;
    assert_eq!(status, 400);
    assert!(
        broken["detail"].as_str().unwrap().contains("line 2"),
        "the line helps its writer: {broken}"
    );
}

/// The errors of the entries of a batch, all of which failed.
fn errors_of(answer: &Value) -> Vec<&str> {
    let results = answer["results"].as_array().unwrap().iter();
    results.map(|one| one["error"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_mistake_in_an_entry_of_a_batch_is_reported_by_its_path_in_the_entry() {
    let server = server().start();
    let batch = json!({"instances": [{"machine": 5}, 7, {"machine": "m", "key": "12"}, {}]});
    let (_, answer) = server.post("/v1/instances/batch", &batch).await;
    let errors = errors_of(&answer);
    assert_eq!(
        errors[0],
        "invalid entry: `machine` is 5: expected a string"
    );
    assert_eq!(errors[1], "invalid entry: it is 7: expected an object");
    assert!(
        errors[2].starts_with("invalid entry: `key`: \"12\" cannot be"),
        "{}",
        errors[2]
    );
    let batch = json!({"events": [{"typ": "x"}, null]});
    let (_, answer) = server.post("/v1/events/batch", &batch).await;
    let errors = errors_of(&answer);
    assert_eq!(
        errors[0],
        "invalid entry: unknown field `typ`: expected one of `type`, `payload`, `event_id`"
    );
    assert_eq!(errors[1], "invalid entry: it is null: expected an object");
}

#[tokio::test]
async fn a_mistake_in_a_query_or_a_path_is_reported_by_its_name() {
    let server = server().start();
    for (path, expected) in [
        (
            "/v1/instances?limit=ten",
            "invalid query: `limit` is \"ten\": expected a whole number",
        ),
        (
            "/v1/instances?limit=",
            "invalid query: `limit` is \"\": expected a whole number",
        ),
        (
            "/v1/instances?limit=99999999999999999999999",
            "`limit` is \"99999999999999999999999\": expected a smaller number",
        ),
        (
            "/v1/instances?limit=1&limit=2",
            "invalid query: `limit` is given twice",
        ),
        (
            "/v1/instances?colour=red",
            "invalid query: unknown field `colour`: expected one of `status`,",
        ),
        (
            "/v1/instances/k/result?wait_ms=1s",
            "invalid query: `wait_ms` is \"1s\": expected a whole number",
        ),
        (
            "/v1/updates/x",
            "invalid path: \"x\" is not a whole number, or is too large",
        ),
        (
            "/v1/instances/%ff",
            "`target` is not UTF-8: percent-encode the bytes of its UTF-8",
        ),
    ] {
        let (status, answer) = server.get(path).await;
        let detail = answer["detail"].as_str().unwrap();
        assert_eq!(status, 400, "{path}: {detail}");
        assert!(
            detail.contains(expected),
            "{path}: {detail:?} is not {expected:?}"
        );
        is_plain(detail);
    }
    let (status, answer) = server.put("/v1/machines/m/one", &json!({})).await;
    let detail = answer["detail"].as_str().unwrap();
    assert_eq!(
        (status, detail),
        (
            400,
            "invalid path: \"one\" is not a whole number, or is too large"
        )
    );
}
