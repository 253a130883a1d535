//! Metrics for operators, after real work.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Over, PATIENCE, Server, postgres, server};

/// The value of one line of `/metrics`.
fn value(text: &str, line: &str) -> f64 {
    let found = text
        .lines()
        .find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
    found
        .unwrap_or_else(|| panic!("no {line} in\n{text}"))
        .parse()
        .unwrap()
}

async fn metrics(server: &Server) -> String {
    let response = server.http.get(server.at("/metrics")).send().await.unwrap();
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain")
    );
    response.text().await.unwrap()
}

/// The same when the figures of the store are there: on a busy machine they come later than the first answer.
async fn metrics_of_the_store(server: &Server) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let text = metrics(server).await;
        if text.contains("abide_queue_depth{") {
            return text;
        }
        assert!(Instant::now() < until, "no figures of the store in\n{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn work_can_be_measured(server: Server) {
    server.declare("m", "go").await;
    for key in ["a", "b", "c"] {
        let start = json!({"machine": "m", "version": 1, "key": key, "step": "begin", "state": 0});
        assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    }
    let claim = json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}], "limit": 2, "wait_ms": 10_000});
    let (_, claimed) = server.post("/v1/workers/claim", &claim).await;
    let claims: Vec<&Value> = claimed["claims"]
        .as_array()
        .unwrap()
        .iter()
        .map(|claim| &claim["claim"])
        .collect();
    assert_eq!(claims.len(), 2, "{claimed}");
    let wait = json!({"wait": {"signals": ["go"], "next": "go", "state": 1}});
    let outcomes = json!([{"claim": claims[0], "outcome": wait}, {"claim": claims[1], "outcome": {"done": {"result": 1}}}]);
    let (_, committed) = server
        .post(
            "/v1/workers/commit",
            &json!({"worker": "w", "outcomes": outcomes}),
        )
        .await;
    assert_eq!(
        committed["results"][0]["status"], "committed",
        "{committed}"
    );
    // One fails, and has no policy by which it would be tried again.
    let failing =
        json!({"machine": "flaky", "version": 1, "key": "f", "step": "begin", "state": 0});
    assert_eq!(server.post("/v1/instances", &failing).await.0, 201);
    let flaky = json!({"worker": "v", "queue": "default", "machines": [{"name": "flaky", "version": 1}], "wait_ms": 10_000});
    let (_, held) = server.post("/v1/workers/claim", &flaky).await;
    let failed =
        json!([{"claim": held["claims"][0]["claim"], "outcome": {"fail": {"error": "no"}}}]);
    let (_, reply) = server
        .post(
            "/v1/workers/commit",
            &json!({"worker": "v", "outcomes": failed}),
        )
        .await;
    assert_eq!(reply["results"][0]["status"], "committed", "{reply}");
    let unwanted =
        json!({"machine": "idle", "version": 1, "key": "i", "step": "begin", "state": 0});
    assert_eq!(server.post("/v1/instances", &unwanted).await.0, 201);
    let (status, cancelled) = server.post("/v1/instances/i/cancel", &json!({})).await;
    assert_eq!(status, 200, "{cancelled}");
    // Given back, it is somebody else's.
    let (_, claimed) = server.post("/v1/workers/claim", &claim).await;
    let gone = server
        .http
        .delete(server.at("/v1/workers/w"))
        .send()
        .await
        .unwrap();
    assert!(gone.status().is_success());
    let late =
        json!([{"claim": claimed["claims"][0]["claim"], "outcome": {"done": {"result": 1}}}]);
    let (_, stale) = server
        .post(
            "/v1/workers/commit",
            &json!({"worker": "w", "outcomes": late}),
        )
        .await;
    assert_eq!(stale["results"][0]["status"], "stale", "{stale}");
    for (key, name, status) in [("a", "no", 404), ("zzz", "go", 404), ("c", "go", 202)] {
        assert_eq!(
            server
                .post(&format!("/v1/instances/{key}/signals/{name}"), &json!({}))
                .await
                .0,
            status
        );
    }
    assert_eq!(
        server
            .post("/v1/events", &json!({"type": "t", "payload": 1}))
            .await
            .0,
        200
    );

    let text = metrics_of_the_store(&server).await;
    let at_least = |line: &str, least: f64| {
        let met = value(&text, line);
        assert!(met >= least, "{line} {met}");
    };
    at_least("abide_claimed_total{queue=\"default\"}", 3.0);
    at_least("abide_claim_latency_seconds_count{queue=\"default\"}", 2.0);
    at_least(
        "abide_step_seconds_count{machine=\"m\",step=\"begin\"}",
        2.0,
    );
    at_least("abide_committed_total", 2.0);
    at_least("abide_stale_total", 1.0);
    at_least("abide_commit_batch_size_count{kind=\"outcomes\"}", 2.0);
    at_least("abide_commit_seconds_count{kind=\"outcomes\"}", 2.0);
    at_least(
        "abide_signals_total{kind=\"signal\",outcome=\"signal_received\"}",
        1.0,
    );
    at_least(
        "abide_signals_total{kind=\"signal\",outcome=\"rejected_unknown_signal\"}",
        1.0,
    );
    at_least(
        "abide_signals_total{kind=\"signal\",outcome=\"no_target\"}",
        1.0,
    );
    at_least("abide_events_total{outcome=\"unmatched\"}", 1.0);
    at_least(
        "abide_queue_depth{queue=\"default\",status=\"runnable\"}",
        1.0,
    );
    at_least("abide_queue_oldest_ready_seconds{queue=\"default\"}", 0.0);
    at_least("abide_waits{queue=\"default\",kind=\"signal\"}", 1.0);
    at_least("abide_workers", 1.0);
    let route = "/v1/instances/{target}/signals/{name}";
    at_least(
        &format!("abide_http_requests_total{{method=\"POST\",route=\"{route}\",status=\"404\"}}"),
        2.0,
    );
    at_least(
        &format!("abide_http_request_seconds_count{{route=\"{route}\"}}"),
        3.0,
    );

    // Instances that were started and that have ended, by a worker's outcome or an operator's command.
    for (line, count) in [
        ("abide_instances_started_total{machine=\"m\"}", 3.0),
        ("abide_instances_started_total{machine=\"flaky\"}", 1.0),
        (
            "abide_instances_ended_total{machine=\"idle\",status=\"cancelled\"}",
            1.0,
        ),
        (
            "abide_instances_ended_total{machine=\"flaky\",status=\"failed\"}",
            1.0,
        ),
        ("abide_run_seconds_count{machine=\"flaky\"}", 1.0),
        ("abide_step_attempts_total{machine=\"m\"}", 2.0),
        ("abide_step_attempts_total{machine=\"flaky\"}", 1.0),
        ("abide_step_failures_total{machine=\"flaky\"}", 1.0),
        ("abide_blocked{queue=\"default\"}", 0.0),
        (
            concat!(
                "abide_build_info{version=\"",
                env!("CARGO_PKG_VERSION"),
                "\"}"
            ),
            1.0,
        ),
    ] {
        assert_eq!(value(&text, line), count, "{line}");
    }
    assert!(!text.contains("abide_step_failures_total{machine=\"m\"}"));
    at_least("process_cpu_seconds_total", 0.001);
    at_least("process_resident_memory_bytes", 1_000_000.0);
    at_least("process_open_fds", 3.0);
    at_least("process_max_fds", 100.0);
    at_least("process_start_time_seconds", 1_600_000_000.0);
    if server.store.starts_with("postgres:") {
        assert_eq!(value(&text, "abide_pool_size"), 8.0);
        at_least("abide_pool_open", 2.0);
        at_least("abide_pool_in_use", 0.0);
        at_least("abide_pool_wait_seconds_count", 10.0);
    }

    // Each is described, and histograms have buckets.
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .unwrap_or(name);
        assert!(
            text.contains(&format!("# HELP {family} ")),
            "{family} has no HELP"
        );
        assert!(
            text.contains(&format!("# TYPE {family} ")),
            "{family} has no TYPE"
        );
        assert!(
            !text.contains(&format!("# TYPE {family} summary")),
            "{family} has no buckets"
        );
    }
    assert!(
        text.contains("abide_step_seconds_bucket{machine=\"m\",step=\"begin\",le=\"+Inf\"}"),
        "{text}"
    );
}

#[tokio::test]
async fn work_can_be_measured_on_sqlite() {
    work_can_be_measured(server().start()).await;
}

#[tokio::test]
async fn work_can_be_measured_on_postgres() {
    work_can_be_measured(server().over(postgres()).start()).await;
}

#[tokio::test]
async fn what_is_asked_for_makes_no_label() {
    let server = server().start();
    for n in 0..20 {
        server.get(&format!("/v1/nothing/{n}")).await;
        server.get(&format!("/v1/instances/key-{n}")).await;
    }
    let request = server
        .http
        .request("BREW".parse().unwrap(), server.at("/v1/queues"));
    assert_eq!(request.send().await.unwrap().status(), 405);
    let text = metrics(&server).await;
    assert!(
        !text.contains("nothing") && !text.contains("key-") && !text.contains("BREW"),
        "{text}"
    );
    assert_eq!(
        value(
            &text,
            "abide_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"}"
        ),
        20.0
    );
}

#[tokio::test]
async fn the_access_log_tells_of_each_request_and_of_no_secret() {
    let server = server().start();
    let request = server
        .http
        .post(server.at("/v1/events?x=geheim"))
        .header("x-request-id", "my-id-1");
    let response = request
        .bearer_auth("geheim")
        .json(&json!({"type": "t", "payload": "geheim"}))
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-request-id"], "my-id-1");
    let plain = server
        .http
        .get(server.at("/v1/instances/geheim"))
        .header("x-request-id", "not fit")
        .send()
        .await
        .unwrap();
    let id = plain.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert!(id.len() > 16 && id != "not fit", "{id}");
    let problem: Value = plain.json().await.unwrap();
    assert_eq!(problem["request_id"], Value::String(id.clone()));
    let probes = ["/healthz", "/readyz", "/metrics"];
    for probe in probes {
        let probed = server.http.get(server.at(probe)).send().await.unwrap();
        assert_eq!(probed.status(), 200, "{probe}");
    }
    // Requests are logged in order: the probes came before this one.
    let last = server.http.get(server.at("/v1/workers"));
    let last = last.header("x-request-id", "my-id-2");
    last.send().await.unwrap();
    server.logs("my-id-2", 1).await;
    let log = server.log();
    assert!(!log.contains("geheim"), "{log}");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let line = lines
        .iter()
        .find(|line| line["request_id"] == id.as_str())
        .unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (&line["method"], &line["route"], &line["status"]),
        (&json!("GET"), &json!("/v1/instances/{target}"), &json!(404))
    );
    assert!(line["ms"].as_f64().is_some());
    assert!(lines.iter().any(|line| line["request_id"] == "my-id-1"));
    assert!(lines.iter().any(|line| line["request_id"] == "my-id-2"));
    let probed = |line: &&Value| probes.iter().any(|probe| line["route"] == *probe);
    assert_eq!(lines.iter().find(probed), None, "{log}");
}

#[tokio::test]
async fn queues_beyond_those_that_have_a_label_share_one_sum_and_the_age_of_the_oldest() {
    let server = server().start();
    let hours_ago =
        |hours: i64| (jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours)).to_string();
    let start = |n: i64| json!({"machine": "m", "version": 1, "step": "s", "queue": format!("q{n}"), "due_at": hours_ago(1)});
    let starts: Vec<Value> = (0..1_100).map(start).collect();
    let (status, _) = server
        .post("/v1/instances/batch", &json!({"instances": starts}))
        .await;
    assert_eq!(status, 200);
    let text = metrics_of_the_store(&server).await;
    let shared = value(
        &text,
        "abide_queue_depth{queue=\"other\",status=\"runnable\"}",
    );
    assert!(shared >= 100.0, "{shared}");
    let oldest = value(&text, "abide_queue_oldest_ready_seconds{queue=\"other\"}");
    assert!(
        (3_500.0..2.0 * 3_600.0).contains(&oldest),
        "the oldest is an hour old, and not {oldest} s"
    );
}

/// Work of a machine that was deployed nowhere was seen only when the oldest of its instances had waited for minutes.
async fn work_without_a_worker_is_measured(server: Server) {
    let of = |machine: &str, version: i64| json!({"machine": machine, "version": version, "step": "s", "queue": "mail"});
    for (machine, version) in [("letter", 1), ("letter", 2), ("letter", 2), ("parcel", 1)] {
        let (status, _) = server.post("/v1/instances", &of(machine, version)).await;
        assert_eq!(status, 201);
    }
    let of_letters = "abide_unserved{queue=\"mail\",machine=\"letter\"}";
    let of_parcels = "abide_unserved{queue=\"mail\",machine=\"parcel\"}";
    let text = metrics_of_the_store(&server).await;
    // Versions, however many instances each has.
    assert_eq!(value(&text, of_letters), 2.0);
    assert_eq!(value(&text, of_parcels), 1.0);
    // A worker serves one of the versions, and takes one of its two instances.
    let claim = json!({"worker": "w", "queue": "mail", "machines": [{"name": "letter", "version": 2}], "limit": 1, "wait_ms": 10_000});
    let (_, claimed) = server.post("/v1/workers/claim", &claim).await;
    assert_eq!(claimed["claims"].as_array().unwrap().len(), 1, "{claimed}");
    let until = Instant::now() + PATIENCE;
    loop {
        let text = metrics(&server).await;
        if value(&text, of_letters) == 1.0 {
            assert_eq!(value(&text, of_parcels), 1.0);
            break;
        }
        assert!(Instant::now() < until, "it is unserved still in\n{text}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn work_without_a_worker_is_measured_on_sqlite() {
    work_without_a_worker_is_measured(server().start()).await;
}

#[tokio::test]
async fn work_without_a_worker_is_measured_on_postgres() {
    work_without_a_worker_is_measured(server().over(postgres()).start()).await;
}

/// The sum of a metric over all its labels.
fn total(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[tokio::test]
async fn what_a_database_that_is_away_fails_is_counted() {
    let database = abide_pgtest::Server::private(&[]);
    let url = database.fresh_database();
    let server = server().over(Over::Url(url)).start();
    let before = metrics(&server).await;
    let counters = [
        "abide_failed_transactions_total",
        "abide_failed_reads_total",
    ];
    let before = counters.map(|name| total(&before, name));
    database.stop();
    let start = json!({"machine": "m", "key": "a"});
    let (write, read) = tokio::join!(
        server.post("/v1/instances", &start),
        server.get("/v1/instances/a")
    );
    assert!(write.0 >= 500 && read.0 >= 500, "{write:?} {read:?}");
    let after = metrics(&server).await;
    for (name, before) in counters.into_iter().zip(before) {
        assert!(total(&after, name) > before, "{name} in\n{after}");
    }
    database.start();
}

#[tokio::test]
async fn instances_that_no_build_can_run_are_counted() {
    let server = server().start();
    let start = json!({"machine": "m", "key": "a"});
    assert_eq!(server.post("/v1/instances", &start).await.0, 201);
    let claim = json!({"worker": "w", "queue": "default", "machines": [{"name": "m", "version": 1}], "wait_ms": 10_000});
    let (_, claimed) = server.post("/v1/workers/claim", &claim).await;
    let block = json!([{"claim": claimed["claims"][0]["claim"], "outcome": {"block": {"reason": "no step start"}}}]);
    let outcomes = json!({"worker": "w", "outcomes": block});
    let (_, reply) = server.post("/v1/workers/commit", &outcomes).await;
    assert_eq!(reply["results"][0]["status"], "committed", "{reply}");
    let until = Instant::now() + PATIENCE;
    loop {
        let text = metrics_of_the_store(&server).await;
        if total(&text, "abide_blocked") == 1.0 {
            assert!(value(&text, "abide_blocked{queue=\"default\"}") == 1.0);
            return;
        }
        assert!(Instant::now() < until, "{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
