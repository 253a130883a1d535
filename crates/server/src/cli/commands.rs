//! The commands that work on any store: a file, a database, a server.

use clap::Subcommand;

use super::context::Context;
use super::failure::Result;
use super::{
    bench, check, doctor, events, export, list, migrate, operate, outbox, overview, publish,
    result, show, signal, signals, start, sweep, update, waits, watch,
};

/// The commands that work on any store.
#[derive(Debug, Subcommand)]
#[allow(missing_docs, reason = "the help of each is on its arguments")]
pub enum StoreCommand {
    Start(start::Args),
    Signal(signal::Args),
    Update(update::Args),
    Publish(publish::Args),
    List(list::Args),
    Show(show::Args),
    Watch(watch::Args),
    Result(result::Args),
    Cancel(operate::Cancel),
    Restart(operate::Restart),
    Repair(operate::Repair),
    Doctor(doctor::Args),
    Check(check::Args),
    Waits(waits::Args),
    Events(events::Args),
    Signals(signals::Args),
    Outbox(outbox::Args),
    Workers(overview::Workers),
    Queues(overview::Queues),
    Machines(overview::Machines),
    Stats(overview::Stats),
    Migrate(migrate::Args),
    Sweep(sweep::Args),
    Export(export::Args),
    Bench(bench::Args),
}

impl StoreCommand {
    /// Runs it, and lets go of the store.
    pub async fn run(self, context: &Context) -> Result {
        let ended = self.run_on(context).await;
        context.close().await;
        ended
    }

    async fn run_on(self, context: &Context) -> Result {
        match self {
            Self::Start(args) => args.run(context).await,
            Self::Signal(args) => args.run(context).await,
            Self::Update(args) => args.run(context).await,
            Self::Publish(args) => args.run(context).await,
            Self::List(args) => args.run(context).await,
            Self::Show(args) => args.run(context).await,
            Self::Watch(args) => args.run(context).await,
            Self::Result(args) => args.run(context).await,
            Self::Cancel(args) => args.run(context).await,
            Self::Restart(args) => args.run(context).await,
            Self::Repair(args) => args.run(context).await,
            Self::Doctor(args) => args.run(context).await,
            Self::Check(args) => args.run(context).await,
            Self::Waits(args) => args.run(context).await,
            Self::Events(args) => args.run(context).await,
            Self::Signals(args) => args.run(context).await,
            Self::Outbox(args) => args.run(context).await,
            Self::Workers(args) => args.run(context).await,
            Self::Queues(args) => args.run(context).await,
            Self::Machines(args) => args.run(context).await,
            Self::Stats(args) => args.run(context).await,
            Self::Migrate(args) => args.run(context).await,
            Self::Sweep(args) => args.run(context).await,
            Self::Export(args) => args.run(context).await,
            Self::Bench(args) => args.run(context).await,
        }
    }
}
