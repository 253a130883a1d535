//! Stores that talk to the server through a gate, which lets one statement pass at a time. The store goes on until the
//! server has answered, or until it waits for a lock.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use abide_kernel::{Answer, Error, ManualClock, Op, Result, Store};
use abide_postgres::tokio_postgres::Client;
use abide_postgres::{Listen, Options, Postgres, Timeouts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{clocked, connect, database, deaf};

/// Lets statements pass one at a time, once it is shut.
#[derive(Default)]
pub struct Gate {
    shut: AtomicBool,
    /// The port from which the server is talked to.
    port: AtomicU16,
    count: Mutex<Count>,
    passes: Notify,
    /// Something has come to the gate, has been answered, or is over.
    moved: Notify,
}

/// Statements that wait at a gate, and those that have gone through.
#[derive(Default)]
struct Count {
    waits: bool,
    may_pass: bool,
    sent: usize,
    answered: usize,
}

impl Gate {
    pub fn shut(&self) {
        let mut count = self.count.lock().unwrap();
        (count.waits, count.may_pass) = (false, false);
        self.shut.store(true, Ordering::SeqCst);
    }

    pub fn open(&self) {
        self.shut.store(false, Ordering::SeqCst);
        self.let_pass();
    }

    pub fn let_pass(&self) {
        let mut count = self.count.lock().unwrap();
        if count.waits {
            (count.waits, count.may_pass) = (false, true);
            count.sent += 1;
        }
        drop(count);
        self.passes.notify_one();
    }

    /// Waits until what has come may pass.
    async fn pass(&self, is_begin: bool) {
        // BEGIN neither locks nor sees anything.
        if is_begin || !self.shut.load(Ordering::SeqCst) {
            self.count.lock().unwrap().sent += 1;
            return;
        }
        self.count.lock().unwrap().waits = true;
        self.moved.notify_one();
        loop {
            if std::mem::take(&mut self.count.lock().unwrap().may_pass) {
                return;
            }
            self.passes.notified().await;
        }
    }

    /// From the client: a statement is all that comes up to a Sync, or a simple query.
    async fn forth(&self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) {
        let (mut bytes, mut is_started, mut looked_at) = (Vec::new(), false, 0);
        loop {
            while let Some((kind, end)) = message(&bytes, looked_at, !is_started) {
                let text = bytes[looked_at..end].to_vec();
                looked_at = end;
                if is_started && !matches!(kind, b'S' | b'Q' | b'X') {
                    continue;
                }
                if matches!(kind, b'S' | b'Q') && is_started {
                    let is_begin = text.windows(5).any(|word| word == b"begin") && kind == b'Q';
                    self.pass(is_begin).await;
                }
                if !is_started {
                    // Which the server answers by being ready, as it does a statement.
                    self.count.lock().unwrap().sent += 1;
                }
                is_started = true;
                if to.write_all(&bytes[..end]).await.is_err() {
                    return;
                }
                bytes.drain(..end);
                looked_at = 0;
            }
            if !matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
    }

    /// From the server: it is ready again when a statement is answered.
    async fn back(&self, mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) {
        let mut bytes = Vec::new();
        loop {
            while let Some((kind, end)) = message(&bytes, 0, false) {
                // Before the client has it, which then goes on at once.
                if kind == b'Z' {
                    self.count.lock().unwrap().answered += 1;
                    self.moved.notify_one();
                }
                if to.write_all(&bytes[..end]).await.is_err() {
                    return;
                }
                bytes.drain(..end);
            }
            if !matches!(from.read_buf(&mut bytes).await, Ok(1..)) {
                return;
            }
        }
    }
}

/// The kind of the message that begins there and where it ends, when it has come; the first of all has no kind.
fn message(bytes: &[u8], at: usize, is_first: bool) -> Option<(u8, usize)> {
    let length_at = at + usize::from(!is_first);
    let length = bytes.get(length_at..length_at + 4)?;
    let end = length_at + u32::from_be_bytes(length.try_into().unwrap()) as usize;
    (bytes.len() >= end).then(|| (bytes[at], end))
}

/// Time without an answer after which the server is asked whether it waits for a lock.
const LOOK_AFTER: Duration = Duration::from_millis(2);
/// Number of times that an operation is run again after a conflict.
const CONFLICTS_MAX: usize = 16;

/// A store behind a gate, and what it is doing.
pub struct Side {
    store: Arc<Postgres>,
    pub gate: Arc<Gate>,
    ops: Arc<[Op]>,
    doing: Option<JoinHandle<Result<Vec<Answer>>>>,
}

/// Where one side stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    /// A statement waits at the gate, and all before it are answered.
    Ready,
    /// The server waits for a lock.
    Blocked,
    /// The transaction is over.
    Over,
}

impl Side {
    pub async fn open(url: &str, clock: &Arc<ManualClock>) -> Self {
        let (scheme, rest) = url.split_once('@').unwrap();
        let (server, database) = rest.split_once('/').unwrap();
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The gate reads what passes.
        let separator = if database.contains('?') { '&' } else { '?' };
        let through = format!(
            "{scheme}@{}/{database}{separator}sslmode=disable",
            proxy.local_addr().unwrap()
        );
        let (gate, server) = (Arc::new(Gate::default()), server.to_owned());
        let kept = gate.clone();
        tokio::spawn(async move {
            let (client, _) = proxy.accept().await.unwrap();
            let server = TcpStream::connect(&server).await.unwrap();
            server.set_nodelay(true).unwrap();
            client.set_nodelay(true).unwrap();
            kept.port
                .store(server.local_addr().unwrap().port(), Ordering::SeqCst);
            let ((from_client, to_client), (from_server, to_server)) =
                (client.into_split(), server.into_split());
            tokio::join!(
                async {
                    kept.forth(from_client, to_server).await;
                },
                async {
                    kept.back(from_server, to_client).await;
                }
            );
        });
        let options = Options {
            clock: Some(clock.clone()),
            listen: Listen::Off,
            // The gate accepts one connection, so the server must not end it, however long a slow computer takes.
            pool_size: 1,
            timeouts: Timeouts {
                lock: Duration::ZERO,
                idle: Duration::ZERO,
                transaction: Duration::ZERO,
                ..Timeouts::default()
            },
            migrate: false,
            ..Options::default()
        };
        let store = Arc::new(Postgres::connect(&through, options).await.unwrap());
        Self {
            store,
            gate,
            ops: Arc::new([]),
            doing: None,
        }
    }

    /// Begins an operation behind the shut gate.
    pub fn begin(&mut self, op: Op) {
        self.gate.shut();
        self.ops = Arc::new([op]);
        let (store, gate, ops) = (self.store.clone(), self.gate.clone(), self.ops.clone());
        self.doing = Some(tokio::spawn(async move {
            let answers = store.run(ops).await;
            gate.moved.notify_one();
            answers
        }));
    }

    /// Waits until there is nothing to wait for.
    pub async fn stand(&self, eye: &Client) -> Stand {
        let began = Instant::now();
        loop {
            if self.doing.as_ref().unwrap().is_finished() {
                return Stand::Over;
            }
            let (waits, is_answered) = {
                let count = self.gate.count.lock().unwrap();
                (count.waits, count.sent == count.answered)
            };
            if waits && is_answered {
                return Stand::Ready;
            }
            let moved = timeout(LOOK_AFTER, self.gate.moved.notified()).await;
            if moved.is_err() && !is_answered {
                let port = i32::from(self.gate.port.load(Ordering::SeqCst));
                let blocked = "select from pg_stat_activity \
                    where client_port = $1 and wait_event_type = 'Lock'";
                if !eye.query(blocked, &[&port]).await.unwrap().is_empty() {
                    return Stand::Blocked;
                }
            }
            assert!(began.elapsed() < Duration::from_secs(30), "nothing moves");
        }
    }

    /// The answer to what was begun and is over. Notifications that follow are not stepped.
    pub async fn answer(&mut self) -> Result<Answer> {
        let answers = self.doing.take().unwrap().await.unwrap();
        self.gate.open();
        Ok(answers?.remove(0))
    }

    /// The same; an operation that met a conflict is run again, as the committer does it.
    pub async fn answer_at_last(&mut self) -> (Result<Answer>, usize) {
        let (mut answer, mut conflicts) = (self.answer().await, 0);
        while matches!(answer, Err(Error::Conflict(_))) && conflicts < CONFLICTS_MAX {
            conflicts += 1;
            let answers = self.store.run(self.ops.clone()).await;
            answer = answers.map(|mut answers| answers.remove(0));
        }
        (answer, conflicts)
    }

    /// Lets go of the connection.
    pub async fn close(self) {
        self.store.close().await;
    }
}

/// A database, and the stores that prepare and inspect it.
pub struct Room {
    pub url: String,
    pub clock: Arc<ManualClock>,
    pub store: Arc<Postgres>,
    pub eye: Client,
}

impl Room {
    pub async fn new() -> Self {
        Self::on(database()).await
    }

    pub async fn on(url: String) -> Self {
        let (store, clock) = clocked(&url, deaf()).await;
        let eye = connect(&url).await;
        Self {
            url,
            clock,
            store,
            eye,
        }
    }

    /// Runs two operations side by side. Where both could go on, the script decides whether the second one does, and the
    /// first one when it says nothing; all that was chosen is answered.
    pub async fn meet(&self, ops: [Op; 2], script: &[bool]) -> ([Answer; 2], Vec<bool>, String) {
        let [first, second] = ops;
        let mut sides = [
            Side::open(&self.url, &self.clock).await,
            Side::open(&self.url, &self.clock).await,
        ];
        sides[0].begin(first);
        sides[1].begin(second);
        let (mut chosen, mut trail) = (Vec::new(), String::new());
        loop {
            let stands = [
                sides[0].stand(&self.eye).await,
                sides[1].stand(&self.eye).await,
            ];
            let second = match stands {
                [Stand::Over, Stand::Over] => break,
                [Stand::Ready, Stand::Ready] => {
                    chosen.push(script.get(chosen.len()).copied().unwrap_or(false));
                    chosen[chosen.len() - 1]
                }
                [Stand::Ready, _] => false,
                [_, Stand::Ready] => true,
                // What was waited for is being let go.
                _ => continue,
            };
            trail.push(if second { 'b' } else { 'a' });
            if stands.contains(&Stand::Blocked) {
                trail.push('!');
            }
            sides[usize::from(second)].gate.let_pass();
        }
        let answers = [
            sides[0].answer().await.unwrap(),
            sides[1].answer().await.unwrap(),
        ];
        for side in sides {
            side.close().await;
        }
        (answers, chosen, trail)
    }

    /// Runs two operations side by side: the first up to its statement `at`, then the second to its end or to where it
    /// waits for the first, then the rest.
    pub async fn stop(&self, sides: &mut [Side; 2], ops: [Op; 2], at: usize) -> Stopped {
        for (side, op) in sides.iter_mut().zip(ops) {
            side.begin(op);
        }
        let (mut passed, mut trail) = (0, String::new());
        loop {
            let stands = [
                sides[0].stand(&self.eye).await,
                sides[1].stand(&self.eye).await,
            ];
            let second = match stands {
                [Stand::Over, Stand::Over] => break,
                [Stand::Ready, _] if passed < at => false,
                [_, Stand::Ready] => true,
                [Stand::Ready, _] => false,
                // What was waited for is being let go.
                _ => continue,
            };
            passed += usize::from(!second);
            trail.push(if second { 'b' } else { 'a' });
            if stands.contains(&Stand::Blocked) {
                trail.push('!');
            }
            sides[usize::from(second)].gate.let_pass();
        }
        let [first, second] = sides;
        let (first, second) = (first.answer_at_last().await, second.answer_at_last().await);
        Stopped {
            answers: [first.0, second.0],
            conflicts: first.1 + second.1,
            statements: passed,
            trail,
        }
    }
}

/// Outcome of two operations, of which the first was stopped before one of its statements.
pub struct Stopped {
    pub answers: [Result<Answer>; 2],
    /// Number of times that one of them had to be run again.
    pub conflicts: usize,
    /// Number of statements of the first.
    pub statements: usize,
    /// The order of the steps: `a` or `b`, and `!` where the other waited for a lock.
    pub trail: String,
}
