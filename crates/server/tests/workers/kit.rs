//! A worker by hand: each request of the protocol is one call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{PATIENCE, Server};

/// Runs tests over both stores, on servers with these settings.
macro_rules! on_both {
    ($(set($key:literal, $value:literal);)* $($(#[$meta:meta])* async fn $name:ident($server:ident: Server) $body:block)*) => {
        $($(#[$meta])* async fn $name($server: crate::common::Server) $body)*

        /// A server over that store.
        fn serving(over: crate::common::Over) -> crate::common::Server {
            crate::common::server().over(over)$(.set($key, $value))*.start()
        }

        mod sqlite {
            $(#[tokio::test] async fn $name() { super::$name(super::serving(crate::common::Over::Sqlite)).await; })*
        }

        mod postgres {
            $(#[tokio::test] async fn $name() { super::$name(super::serving(crate::common::postgres())).await; })*
        }
    };
}
pub(crate) use on_both;

/// Wait of a poll that is expected to return something.
pub const LONG_MS: u64 = 20_000;

/// A worker of one machine, `m` version 1, in the queue `default`, unless configured otherwise.
pub struct Worker {
    pub url: String,
    pub name: String,
    pub queue: String,
    pub machines: Vec<(String, u32)>,
    pub lease_ms: Option<u64>,
    pub build: Option<String>,
    http: reqwest::Client,
}

/// A worker with a name of its own.
pub fn worker(server: &Server) -> Worker {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    Worker {
        url: server.url.clone(),
        name: format!("worker-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
        queue: "default".into(),
        machines: vec![("m".into(), 1)],
        lease_ms: None,
        build: None,
        http: server.http.clone(),
    }
}

impl Worker {
    pub fn machine(mut self, name: &str) -> Self {
        self.machines = vec![(name.to_owned(), 1)];
        self
    }

    pub fn lease_ms(mut self, lease: u64) -> Self {
        self.lease_ms = Some(lease);
        self
    }

    pub fn build(mut self, build: &str) -> Self {
        self.build = Some(build.to_owned());
        self
    }

    /// The same worker at another server.
    pub fn at(&self, server: &Server) -> Self {
        Self {
            url: server.url.clone(),
            name: self.name.clone(),
            queue: self.queue.clone(),
            machines: self.machines.clone(),
            lease_ms: self.lease_ms,
            build: self.build.clone(),
            http: server.http.clone(),
        }
    }

    /// Body of a claim request.
    pub fn request(&self, limit: usize, wait_ms: u64) -> Value {
        let machines: Vec<Value> = self
            .machines
            .iter()
            .map(|(name, version)| json!({"name": name, "version": version}))
            .collect();
        let mut body = json!({
            "worker": self.name, "queue": self.queue, "machines": machines, "limit": limit, "wait_ms": wait_ms,
        });
        if let Some(lease) = self.lease_ms {
            body["lease_ms"] = lease.into();
        }
        if let Some(build) = &self.build {
            body["build"] = build.as_str().into();
        }
        body
    }

    pub async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{path}", self.url)).json(body);
        let response = request.timeout(PATIENCE * 2).send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.json().await.unwrap())
    }

    /// Claims at most so many, and waits so long.
    pub async fn claim(&self, limit: usize, wait_ms: u64) -> Vec<Value> {
        let (status, body) = self
            .post("/v1/workers/claim", &self.request(limit, wait_ms))
            .await;
        assert_eq!(status, 200, "{body}");
        body["claims"].as_array().unwrap().clone()
    }

    /// Waits for one.
    pub async fn one(&self) -> Value {
        let mut claims = self.claim(1, LONG_MS).await;
        assert_eq!(claims.len(), 1, "nothing came for {}", self.name);
        claims.remove(0)
    }

    /// Asserts that there is nothing now.
    pub async fn none(&self) {
        assert_eq!(self.claim(10, 0).await, Vec::<Value>::new());
    }

    /// Commits outcomes; the result of each.
    pub async fn commit_all(&self, outcomes: Vec<(&Value, Value)>) -> Vec<Value> {
        let outcomes: Vec<Value> = outcomes
            .into_iter()
            .map(|(claim, outcome)| json!({"claim": text(claim), "outcome": outcome}))
            .collect();
        let body = json!({"worker": self.name, "outcomes": outcomes});
        let (status, body) = self.post("/v1/workers/commit", &body).await;
        assert_eq!(status, 200, "{body}");
        body["results"].as_array().unwrap().clone()
    }

    /// Commits one outcome; its status.
    pub async fn commit(&self, claim: &Value, outcome: Value) -> String {
        let results = self.commit_all(vec![(claim, outcome)]).await;
        results[0]["status"].as_str().unwrap().to_owned()
    }

    /// Commits one that must be taken.
    pub async fn done(&self, claim: &Value, outcome: Value) {
        let results = self.commit_all(vec![(claim, outcome)]).await;
        assert_eq!(results[0]["status"], "committed", "{results:?}");
    }

    /// Commits one outcome that is refused; the error.
    pub async fn refused(&self, claim: &Value, outcome: Value) -> String {
        let results = self.commit_all(vec![(claim, outcome)]).await;
        assert_eq!(results[0]["status"], "refused", "{results:?}");
        results[0]["error"].as_str().unwrap().to_owned()
    }

    /// Which of the claims are lost.
    pub async fn heartbeat(&self, claims: &[&Value]) -> Vec<Value> {
        let claims: Vec<&Value> = claims.iter().map(|claim| text(claim)).collect();
        let body = json!({"worker": self.name, "claims": claims});
        let (status, body) = self.post("/v1/workers/heartbeat", &body).await;
        assert_eq!(status, 200, "{body}");
        body["lost"].as_array().unwrap().clone()
    }

    /// Comes back under its name after it died: how much was taken back.
    pub async fn come_back(&self) -> u64 {
        let path = format!("/v1/workers/{}/reclaim", self.name);
        let (status, body) = self.post(&path, &Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body["taken_back"].as_u64().unwrap()
    }

    /// Gives everything back: how much that was.
    pub async fn sign_off(&self) -> u64 {
        let request = self
            .http
            .delete(format!("{}/v1/workers/{}", self.url, self.name));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.json::<Value>().await.unwrap()["given_back"]
            .as_u64()
            .unwrap()
    }
}

/// A claim's text: of a claim, or the text itself.
fn text(claim: &Value) -> &Value {
    claim.get("claim").unwrap_or(claim)
}

/// Starts something: its id.
pub async fn start(server: &Server, body: Value) -> i64 {
    let (status, body) = server.post("/v1/instances", &body).await;
    assert_eq!(status, 201, "{body}");
    body["id"].as_i64().unwrap()
}

/// An instance as it stands.
pub async fn instance(server: &Server, id: i64) -> Value {
    let (status, body) = server.get(&format!("/v1/instances/{id}")).await;
    assert_eq!(status, 200, "{body}");
    body
}

/// Waits for the end of an instance.
pub async fn result(server: &Server, id: i64) -> Value {
    let (status, body) = server
        .get(&format!("/v1/instances/{id}/result?wait_ms=20000"))
        .await;
    assert_eq!(status, 200, "{body}");
    body
}

/// Waits until an instance stands so.
pub async fn until(server: &Server, id: i64, status: &str) -> Value {
    let end = Instant::now() + PATIENCE;
    loop {
        let found = instance(server, id).await;
        if found["status"] == status {
            return found;
        }
        assert!(
            Instant::now() < end,
            "{id} does not become {status}: {found}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
