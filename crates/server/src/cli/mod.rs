//! The command line: one file for each command.

mod bench;
mod check;
mod commands;
mod completions;
mod config;
mod context;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod events;
mod export;
mod failure;
mod health;
mod history;
mod list;
mod migrate;
mod operate;
mod out;
mod outbox;
mod overview;
mod paging;
mod publish;
mod result;
mod serve;
mod shapes;
mod show;
mod signal;
mod signals;
mod start;
mod sweep;
mod table;
mod text;
mod times;
mod token;
mod update;
mod values;
mod waits;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::settings::{Flags, Settings};
use context::Context;
use failure::{EXIT_CODES, Failure, Result, no_store};
use out::Out;

/// Durable execution: programs that wait, and go on after any crash.
#[derive(Debug, Parser)]
#[command(name = "abide", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: CliCommand,
}

impl Cli {
    /// The arguments of the process.
    fn called() -> Self {
        #[cfg(feature = "demo")]
        if let Some(worker) = demo::Worker::called() {
            return Self {
                global: Global::default(),
                command: CliCommand::DemoWorker(worker),
            };
        }
        Self::parse()
    }
}

/// Options that every command has come after a command's own.
const GLOBAL: &str = "Global options";

/// Options that every command has.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Global {
    /// The store: sqlite:FILE, postgres://USER@HOST/DATABASE, or a server, https://HOST [env: ABIDE_STORE]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL")]
    store: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Show times in UTC; without it, in the time zone of this computer. JSON is always in UTC
    #[arg(long, global = true, help_heading = GLOBAL)]
    utc: bool,
    /// Bearer token for the server; ABIDE_TOKEN_FILE names a file with it
    #[arg(long, global = true, help_heading = GLOBAL, env = "ABIDE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// The file with settings [env: ABIDE_CONFIG]
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Global {
    /// The settings in force, including those from the flags of a command.
    fn settings(&self, more: Vec<(String, String, &'static str)>) -> Result<Settings> {
        let mut values = more;
        if let Some(store) = &self.store {
            values.push(("store".to_owned(), store.clone(), "--store"));
        }
        let flags = Flags {
            config: self.config.clone(),
            values,
        };
        Settings::load(&flags)
            .map_err(|error| Failure::usage(error.to_string()).next("abide config"))
    }

    /// The output.
    fn out(&self) -> Out {
        Out::new(self.json, self.utc)
    }

    /// The context of commands.
    fn context(&self) -> Result<Context> {
        let settings = self.settings(Vec::new())?;
        let out = self.out();
        let store = settings.store().map_err(|error| no_store(&error))?;
        let context = Context::new(store.to_owned(), self.token.clone(), settings.limits, out);
        Ok(context.trusting(settings.tls.ca))
    }
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::Args),
    #[cfg(feature = "demo")]
    Demo(demo::Args),
    /// An internal command: neither in the help nor completed.
    #[cfg(feature = "demo")]
    #[command(skip)]
    DemoWorker(demo::Worker),
    #[command(flatten)]
    Store(commands::StoreCommand),
    Config(config::Args),
    Token(token::Args),
    Completions(completions::Completions),
    Man(completions::Man),
}

/// Runs the command that the process was called with.
pub fn main() -> ExitCode {
    let Cli { global, command } = Cli::called();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("abide: the system gives no threads: {error}");
            return failure::Exit::Unreachable.into();
        }
    };
    let ended = runtime.block_on(async {
        match command {
            CliCommand::Serve(args) => serve::run(args, &global).await,
            #[cfg(feature = "demo")]
            CliCommand::Demo(args) => demo::run(args, &global).await,
            #[cfg(feature = "demo")]
            CliCommand::DemoWorker(worker) => worker.run().await,
            CliCommand::Config(args) => config::run(args, &global),
            CliCommand::Token(args) => token::run(args, &global.context()?).await,
            CliCommand::Store(command) => command.run(&global.context()?).await,
            CliCommand::Completions(args) => args.run(Cli::command(), &global.out()),
            CliCommand::Man(args) => args.run(Cli::command(), &global.out()),
        }
    });
    // Tasks that still run are no longer needed.
    runtime.shutdown_background();
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let out = global.out();
            if let Some(document) = failure.document.as_ref().filter(|_| out.json) {
                // A closed output is not an error.
                let _ = out.document(document);
            }
            out.tell(&failure.message());
            failure.exit.into()
        }
    }
}
