//! A store, and the binary over it.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use abide::client::new_start;
use abide::machine::{Answer, Call, Messages};
use abide::time::{hours, secs};
use abide::{
    Abide, BoxError, Context, Flow, Job, Machine, Message, Outcome, Signal, Step, Update, Workflow,
};
use abide::{done, next, stop};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::{self, Server};

/// A store, and the binary over it.
pub struct Lab {
    /// The store that the binary works on, as a connection string.
    pub url: String,
    /// The store itself, which the tests' own workers work on.
    pub store: String,
    home: TempDir,
    /// Held: it ends with the test.
    server: Option<Server>,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Lab {
    pub fn sqlite() -> Self {
        let home = common::home();
        let url = format!("sqlite:{}", home.path().join("orders.db").display());
        Self {
            store: url.clone(),
            url,
            home,
            server: None,
        }
    }

    pub fn postgres() -> Self {
        Self::on(common::database())
    }

    /// A database without a schema.
    pub fn without_schema() -> Self {
        Self::on(abide_pgtest::server().fresh_database())
    }

    fn on(url: String) -> Self {
        Self {
            store: url.clone(),
            url,
            home: common::home(),
            server: None,
        }
    }

    pub fn server() -> Self {
        let server = common::server().start();
        Self {
            url: server.url.clone(),
            store: server.store.clone(),
            home: common::home(),
            server: Some(server),
        }
    }

    /// Returns true if the binary speaks to a server.
    pub fn is_server(&self) -> bool {
        self.server.is_some()
    }

    /// The server.
    pub fn its_server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// The store, opened by the test, with its tables.
    pub async fn abide(&self) -> Abide {
        Abide::open(&self.store).await.unwrap()
    }

    /// The binary, on this store.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = common::abide(self.home.path());
        command.args(arguments).args(["--store", &self.url]);
        command
    }

    /// Runs the binary.
    pub async fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.command(arguments);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap();
        Ran::of(output)
    }

    /// Runs the binary, which must succeed; what it printed.
    pub async fn done(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments).await;
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
        ran.out
    }

    /// Runs the binary, which must end because its store is not there and print nothing.
    pub async fn without_a_store(&self, arguments: &[&str]) -> Ran {
        let ran = self.run(arguments).await;
        let code = (ran.code, ran.out.as_str());
        assert_eq!(code, (3, ""), "{arguments:?}: {ran:?}");
        ran
    }

    /// Runs the binary with `--json`, which must succeed; the document.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let out = self.done(&[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {out}"))
    }

    /// Runs the binary with something to read.
    pub async fn piped(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        let input = input.to_owned();
        let ran = tokio::task::spawn_blocking(move || {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            child
                .stdin
                .take()
                .unwrap()
                .write_all(input.as_bytes())
                .unwrap();
            child.wait_with_output().unwrap()
        });
        Ran::of(ran.await.unwrap())
    }

    /// Runs the binary on a terminal of that width, by script(1).
    pub async fn on_terminal(&self, arguments: &[&str], columns: usize) -> Ran {
        self.on_terminal_with("", arguments, columns).await
    }

    /// The same, with a variable: `NAME=value`.
    pub async fn on_terminal_with(
        &self,
        variable: &str,
        arguments: &[&str],
        columns: usize,
    ) -> Ran {
        let quoted: Vec<String> = arguments
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        let line = format!(
            "stty cols {columns} rows 50; {variable} '{}' {} --store '{}'",
            env!("CARGO_BIN_EXE_abide"),
            quoted.join(" "),
            self.url
        );
        let home = self.home.path().to_owned();
        let output = tokio::task::spawn_blocking(move || {
            Command::new("script")
                .args(["-qec", &line, "/dev/null"])
                .env("HOME", home)
                .env("TERM", "xterm-256color")
                .env_remove("COLUMNS")
                .env_remove("NO_COLOR")
                .stdin(Stdio::null())
                .output()
                .unwrap()
        });
        Ran::of(output.await.unwrap())
    }

    /// A file in the home of the binary.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// A path in the home of the binary.
    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs a test on a file, on PostgreSQL, and on a server.
macro_rules! on_every_store {
    ($($(#[$doc:meta])* async fn $name:ident($lab:ident: Lab) $body:block)*) => { $(
        $(#[$doc])*
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all that its file does")]
            use super::*;

            async fn test($lab: Lab) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                test(Lab::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                test(Lab::postgres()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn server() {
                test(Lab::server()).await;
            }
        }
    )* };
}
pub(crate) use on_every_store;

#[derive(Debug, Message)]
pub struct Payment {
    pub amount: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Message)]
pub struct Rename {
    pub to: String,
}

pub const PAID: Signal<Payment> = Signal::new("payment_confirmed");
pub const RENAME: Update<Rename, String> = Update::new("rename");

/// An order: waits for its payment for an hour; `fail` in its state makes it fail.
pub struct Checkout;

#[derive(Step)]
pub enum At {
    Start,
    Ship,
}

impl Machine for Checkout {
    const NAME: &'static str = "checkout";
    type Step = At;
    type State = Value;
    type Output = Value;

    fn messages() -> Messages {
        Messages::new().signal(PAID).update(RENAME)
    }

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Start if ctx.state().get("fail") == Some(&"long".into()) => stop(
                "the order could not be charged: the bank's gateway did not answer in time: https://bank.example/v1/charges: connection refused (os error 111)",
            ),
            At::Start if ctx.state().get("fail").is_some() => {
                stop("the card was\u{1b}[31m refused")
            }
            At::Start if ctx.state().get("quick").is_some() => done(ctx.state().clone()),
            // A signal that it does not declare: a slip of the pen.
            At::Start if ctx.state().get("slip").is_some() => ctx.wait_for(GO).then(At::Ship),
            At::Start => ctx.wait_for(PAID).timeout(hours(1)).then(At::Ship),
            At::Ship => {
                let paid = ctx.awaited(PAID)?.amount;
                done(serde_json::json!({"paid": paid}))
            }
        }
    }

    async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> {
        let to = call.read(RENAME)?.to;
        if to == "unnamed" {
            return Err("there must be a name".into());
        }
        if let Some(state) = ctx.state_mut().as_object_mut() {
            state.insert("name".into(), to.clone().into());
        }
        RENAME.reply(&to)
    }
}

/// Takes longer than any test.
pub const SLOW: Job<u64, u64> = Job::new("slow");
pub const CHILD: Job<u32, u32> = Job::new("child");

/// Starts children that no worker runs, and waits for them.
pub struct Parent;

#[derive(Step)]
pub enum Family {
    Begin,
    Join,
}

impl Machine for Parent {
    const NAME: &'static str = "parent";
    type Step = Family;
    type State = ();
    type Output = usize;

    async fn step(&self, at: Family, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            Family::Begin => ctx
                .spawn((0..3).map(|n| new_start(CHILD, n).key(format!("child:{n}"))))
                .then(Family::Join),
            Family::Join => done(ctx.children().len()),
        }
    }
}

/// Goes on in a new run, once.
pub struct Chain;

#[derive(Step)]
pub enum Link {
    Only,
}

impl Machine for Chain {
    const NAME: &'static str = "chain";
    type Step = Link;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: Link, ctx: &mut Context<Self>) -> Outcome<Self> {
        let run = *ctx.state();
        *ctx.state_mut() = 1;
        match run {
            0 => abide::machine::continue_as_new(Link::Only),
            n => done(n),
        }
    }
}

/// Many steps, one after the other.
pub struct Steps;

impl Machine for Steps {
    const NAME: &'static str = "steps";
    type Step = Link;
    type State = u32;
    type Output = u32;

    async fn step(&self, _: Link, ctx: &mut Context<Self>) -> Outcome<Self> {
        *ctx.state_mut() += 1;
        match *ctx.state() {
            n if n < 10 => next(Link::Only),
            n => done(n),
        }
    }
}

pub const GO: Signal<u32> = Signal::new("go");
pub const FLOW: Flow<(), u32> = Flow::new("flow");

/// Waits for a condition that an update never makes true.
pub async fn conditional(wf: Workflow, (): ()) -> Result<u32, BoxError> {
    let ready = wf.state(false);
    wf.condition("ready", {
        let ready = ready.clone();
        move || ready.get()
    })
    .await?;
    Ok(1)
}

/// Waits for a signal after a step.
pub async fn before(wf: Workflow, (): ()) -> Result<u32, BoxError> {
    wf.step("before", || async { Ok::<_, BoxError>(1) }).await?;
    Ok(wf.signal(GO).await?)
}

/// The same, otherwise: it does not fit what was recorded.
pub async fn after(wf: Workflow, (): ()) -> Result<u32, BoxError> {
    wf.step("after", || async { Ok::<_, BoxError>(1) }).await?;
    Ok(wf.signal(GO).await?)
}

/// Waits until something is so.
pub async fn until<T>(mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let until = tokio::time::Instant::now() + common::PATIENCE;
    loop {
        if let Some(seen) = check().await {
            return seen;
        }
        assert!(
            tokio::time::Instant::now() < until,
            "it never came to be so"
        );
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Waits until an instance is so.
pub async fn until_it_is(abide: &Abide, target: &str, liveness: &str) {
    until(async || {
        let described = abide.describe(target).await.unwrap()?;
        (described.liveness.name() == liveness).then_some(())
    })
    .await;
}

/// Duration of a step of the slow job: longer than any test.
pub const LONG: std::time::Duration = secs(600);
