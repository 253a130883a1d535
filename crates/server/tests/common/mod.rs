//! Starts the real binary on a free port of loopback, over a store of its own, and ends it with the test.
#![allow(dead_code, reason = "every test binary uses a part of this")]

pub mod proxy;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use abide::postgres::tokio_postgres::{self, Client, NoTls};
use tempfile::TempDir;

/// Longest time that anything here may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The binary, with nothing of the environment that it could go by.
pub fn abide(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_abide"));
    for (name, _) in std::env::vars_os() {
        let known = name.to_string_lossy();
        if known.starts_with("ABIDE_") || known.starts_with("OTEL_") {
            command.env_remove(&name);
        }
    }
    command
        .env("HOME", home)
        .env("XDG_DATA_HOME", home.join("data"))
        .env("XDG_CONFIG_HOME", home.join("config"))
        .current_dir(home)
        .stdin(Stdio::null());
    command
}

/// Starts a server by a command, and ends it when it has said where it listens; what it said.
pub fn first_line(command: &mut Command) -> String {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    line
}

/// A directory of the test's own: home, data and settings of what it runs.
pub fn home() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Which store a server is over.
pub enum Over {
    /// A SQLite file in the server's home.
    Sqlite,
    /// That one.
    Url(String),
}

/// An empty database of a PostgreSQL that all tests share.
pub fn postgres() -> Over {
    Over::Url(database())
}

/// The URL of an empty database with abide's schema, which an earlier test may have used.
pub fn database() -> String {
    abide_pgtest::server().emptied_database(&abide::postgres::plan(0))
}

/// A foreign session with a transaction that holds what the statement locks, until it commits.
pub async fn holding(url: &str, lock: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let begin = format!("begin; {lock}");
    client.batch_execute(&begin).await.unwrap();
    client
}

/// Inserts a request into the outbox of a database, as any program would.
pub fn insert_request(store: &str, request: &str) {
    match store.strip_prefix("sqlite:") {
        Some(path) => {
            let mine = abide::sqlite::rusqlite::Connection::open(path).unwrap();
            mine.busy_timeout(std::time::Duration::from_secs(30))
                .unwrap();
            let insert = "insert into abide_outbox (request) values (?1)";
            mine.execute(insert, [request]).unwrap();
        }
        None => {
            let insert = format!("insert into abide.outbox (request) values ($r${request}$r$)");
            abide_pgtest::psql(store, &insert);
        }
    }
}

/// Configuration of a server to start.
pub struct Setup {
    over: Over,
    home: Option<TempDir>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    config: Option<String>,
}

/// A server over a SQLite file, unless configured otherwise.
pub fn server() -> Setup {
    Setup {
        over: Over::Sqlite,
        home: None,
        arguments: Vec::new(),
        environment: Vec::new(),
        config: None,
    }
}

impl Setup {
    /// Over that store.
    pub fn over(mut self, over: Over) -> Self {
        self.over = over;
        self
    }

    /// In a home that was prepared, or that a server before it had.
    pub fn home(mut self, home: TempDir) -> Self {
        self.home = Some(home);
        self
    }

    /// With that setting.
    pub fn set(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.arguments.push(format!("--set={key}={value}"));
        self
    }

    /// With that flag.
    pub fn flag(mut self, flag: &str) -> Self {
        self.arguments.push(flag.to_owned());
        self
    }

    /// With that variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With that file of settings.
    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.to_owned());
        self
    }

    /// Starts it, and waits until it is ready.
    pub fn start(self) -> Server {
        let home = self.home.unwrap_or_else(home);
        let store = match self.over {
            Over::Sqlite => format!("sqlite:{}", home.path().join("abide.db").display()),
            Over::Url(url) => url,
        };
        let mut command = abide(home.path());
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", &store]);
        if let Some(toml) = self.config {
            let path = home.path().join("abide.toml");
            std::fs::write(&path, toml).unwrap();
            command.arg("--config").arg(path);
        }
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        command
            .args(self.arguments)
            .envs(self.environment)
            .stdout(Stdio::piped())
            .stderr(log);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            let mut line = String::new();
            let _ = lines.read_line(&mut line);
            let _ = sender.send(line);
            // Read to the end, or the server would be stopped by a full pipe.
            let _ = lines.read_to_end(&mut Vec::new());
        });
        let line = receiver.recv_timeout(PATIENCE).unwrap_or_default();
        let url = line
            .split([' ', ','])
            .find(|word| word.starts_with("http://") || word.starts_with("https://"))
            .map(str::to_owned);
        let server = Server {
            url: url.clone().unwrap_or_default(),
            store,
            child,
            home: Some(home),
            http: reqwest::Client::new(),
        };
        assert!(
            url.is_some(),
            "the server did not start: {line:?}\n{}",
            server.log()
        );
        server
    }
}

/// A running server. It is killed when this is dropped.
pub struct Server {
    /// Where it is: `http://127.0.0.1:…`, without a slash at the end.
    pub url: String,
    /// Its store's connection string.
    pub store: String,
    /// A client.
    pub http: reqwest::Client,
    child: Child,
    home: Option<TempDir>,
}

impl Server {
    /// A whole URL of a path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// The address, to speak TCP with.
    pub fn address(&self) -> String {
        let (_, address) = self.url.split_once("://").unwrap();
        address.to_owned()
    }

    /// Its home.
    pub fn home(&self) -> PathBuf {
        self.home.as_ref().unwrap().path().to_owned()
    }

    /// Sends a GET request; the status and the JSON of the answer.
    pub async fn get(&self, path: &str) -> (u16, serde_json::Value) {
        answer(self.http.get(self.at(path))).await
    }

    /// Sends a POST request with a JSON body.
    pub async fn post(&self, path: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        answer(self.http.post(self.at(path)).json(body)).await
    }

    /// Sends a PUT request with a JSON body.
    pub async fn put(&self, path: &str, body: &serde_json::Value) -> (u16, serde_json::Value) {
        answer(self.http.put(self.at(path)).json(body)).await
    }

    /// Declares version 1 of a machine that takes that signal.
    pub async fn declare(&self, machine: &str, signal: &str) {
        let contract = serde_json::json!({"signals": [{"name": signal}], "updates": []});
        let (status, body) = self
            .put(&format!("/v1/machines/{machine}/1"), &contract)
            .await;
        assert_eq!(status, 200, "{body}");
    }

    /// A command over the same store.
    pub fn cli(&self, arguments: &[&str]) -> Output {
        abide(&self.home())
            .args(arguments)
            .args(["--store", &self.store])
            .output()
            .unwrap()
    }

    /// A new token of that role.
    pub fn token(&self, role: &str) -> String {
        let made = self.cli(&["token", "create", "--role", role]);
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).unwrap().trim().to_owned()
    }

    /// The text of its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.home().join("log")).unwrap_or_default()
    }

    /// Waits until something is so.
    pub async fn until(&self, what: &str, mut is: impl AsyncFnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is().await {
            let is_over = Instant::now() >= until;
            assert!(!is_over, "it never came to be: {what}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until its log says that, so many times.
    pub async fn logs(&self, text: &str, times: usize) {
        let is = async || self.log().matches(text).count() >= times;
        self.until(&format!("it logs {text:?}"), is).await;
    }

    /// Waits until so many long polls wait there.
    pub async fn has_long_polls(&self, count: usize) {
        let line = format!("abide_http_long_polls {count}");
        self.until(&line, async || {
            let (_, metrics) = self.get("/metrics").await;
            metrics.as_str().unwrap().lines().any(|one| one == line)
        })
        .await;
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.pid().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// The exit status; `None` while it runs.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it has ended; the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended() {
                return status.code();
            }
            assert!(
                Instant::now() < until,
                "the server does not end\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it in order, and leaves its home for another.
    pub fn stop(mut self) -> TempDir {
        self.signal("TERM");
        assert_eq!(self.wait(), Some(0), "{}", self.log());
        self.home.take().unwrap()
    }

    /// The home of one that has ended, for another.
    pub fn leave(mut self) -> TempDir {
        self.wait();
        self.home.take().unwrap()
    }

    /// Kills it, and leaves its home for another.
    pub fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.home.take().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The status and the JSON of an answer; text that is not JSON comes as a JSON string.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, serde_json::Value) {
    let response = request.timeout(PATIENCE).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
    (status, body)
}
