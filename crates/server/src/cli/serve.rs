//! `abide serve`: the server.

use std::time::Duration;

use super::Global;
use super::failure::{Exit, Failure, Result, no_store};
use super::times::parse_length;
use crate::serve;

/// Serve the HTTP API of a store
///
/// Opens the store, brings its tables up to date, and listens until SIGTERM or ctrl-c.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  abide serve
  abide serve --listen 127.0.0.1:8080 --store postgres://abide@localhost/abide
  abide serve --store postgres://abide@db/abide --wait 5m
  abide serve --set retention=30 --set log_level=debug")]
pub struct Args {
    /// The address and port to listen on [env: ABIDE_LISTEN] [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// How long to wait for a database that cannot be reached yet; 0 does not wait [env: ABIDE_STORE_WAIT_MS] [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    wait: Option<Duration>,
    /// For tests of applications: a store in memory, whose time callers can move (`POST /test/clock`)
    #[arg(long)]
    test_clock: bool,
    #[command(flatten)]
    set: Set,
}

/// Any setting, by its name.
#[derive(Clone, Debug, clap::Args)]
pub struct Set {
    /// Any setting by its name; `abide config` lists them
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Set {
    /// The settings that were given as flags.
    pub fn values(&self) -> Result<Vec<(String, String, &'static str)>> {
        let pair = |text: &String| {
            let (key, value) = text.split_once('=').ok_or_else(|| {
                Failure::usage(format!("--set {text:?} has no `=`: write --set KEY=VALUE"))
                    .next("abide config")
            })?;
            Ok((key.trim().to_owned(), value.to_owned(), "--set"))
        };
        self.set.iter().map(pair).collect()
    }
}

/// Serves until it is asked to stop.
pub async fn run(args: Args, global: &Global) -> Result {
    let mut values = args.set.values()?;
    if let Some(listen) = args.listen {
        values.push(("listen".to_owned(), listen, "--listen"));
    }
    if let Some(wait) = args.wait {
        let wait = wait.as_millis().to_string();
        values.push(("store_wait_ms".to_owned(), wait, "--wait"));
    }
    let mut settings = global.settings(values)?;
    settings.test_clock = args.test_clock.then(Default::default);
    let traces = serve::observe(&settings).map_err(failed)?;
    serve::run(settings, traces).await.map_err(failed)?;
    Ok(Exit::Done)
}

/// Converts the reason why a server did not start, and adds the command to try next.
pub fn failed(error: serve::ServeError) -> Failure {
    let text = error.to_string();
    match error {
        serve::ServeError::NoStore(error) => no_store(&error),
        serve::ServeError::Open(error) => error.into(),
        serve::ServeError::Store(error) => error.into(),
        serve::ServeError::Unguarded { .. } => {
            Failure::new(Exit::Refused, "no_token", text).next("abide token create --role operate")
        }
        serve::ServeError::Address { .. } => {
            Failure::usage(text).next("abide serve --listen 127.0.0.1:7070")
        }
        serve::ServeError::TestClock { .. } => {
            Failure::usage(text).next("abide serve --test-clock --store memory:")
        }
        serve::ServeError::Listen { .. } => Failure::new(Exit::Unreachable, "listen", text)
            .next("abide serve --listen 127.0.0.1:0      (any free port)"),
        serve::ServeError::Directory(_) => {
            Failure::new(Exit::Unreachable, "unavailable", text).next("abide config")
        }
        serve::ServeError::Hooks(_)
        | serve::ServeError::Nats(_)
        | serve::ServeError::Tls(_)
        | serve::ServeError::Traces(_) => Failure::usage(text).next("abide config"),
    }
}
