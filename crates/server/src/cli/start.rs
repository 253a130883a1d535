//! `abide start`: begins an instance.

use std::time::Duration;

use abide::Abide;
use abide::model::{Json, Key, Liveness, Name, Priority, Started, UniqueKey, When};
use abide::outbox::Wanted;
use abide::time::Timestamp;

use super::context::Context;
use super::failure::{Exit, Failure, Result, duplicate, shell_quoted};
use super::times::{parse_length, parse_moment};
use super::values::{Given, document};
use crate::http::starts::{StartedView, begin};

/// Start an instance, and print its id
///
/// The state comes from --state, or from name=value pairs. If no worker has code for the machine yet, the instance waits for
/// one.
#[derive(Debug, clap::Args)]
// `--version` is the machine's here.
#[command(disable_version_flag = true, after_help = concat!(
    "Examples:\n",
    "  abide start checkout --key order:42 item=kettle amount=100\n",
    "  abide start checkout --state @order.json --delay 1h30m\n",
    "  abide start webhook-handler --graph id=ord_1\n\n",
    "Values:\n",
    "  amount=100       a number, true, false, null, \"text\", [list] or {object}: JSON when it reads as JSON\n",
    "  name=Ada         else a text\n",
    "  code==007        a text, whatever it looks like\n",
    "  tags:='[1, 2]'   JSON, or an error"
))]
pub struct Args {
    /// The machine's name, or with --graph the graph's
    machine: String,
    /// Fields of the state, or of a graph's input: name=value, name:=json, name==text
    #[arg(value_name = "NAME=VALUE")]
    values: Vec<String>,
    /// The whole state: JSON, @file, or - for standard input
    #[arg(long, value_name = "JSON", conflicts_with = "values")]
    state: Option<String>,
    /// The key: unique among live instances, and their address
    #[arg(long)]
    key: Option<String>,
    /// The machine's version [default: the newest]
    #[arg(long, value_name = "N")]
    version: Option<u32>,
    /// The step to begin at [default: the machine's first]
    #[arg(long)]
    step: Option<String>,
    /// The queue [default: the machine's]
    #[arg(long)]
    queue: Option<String>,
    /// The priority: lower numbers run first
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        default_value_t = 0
    )]
    priority: i16,
    /// The partition: one instance of a partition runs at a time
    #[arg(long, value_name = "KEY")]
    partition: Option<String>,
    /// A second key, unique in the same way, which is not an address
    #[arg(long, value_name = "TEXT")]
    unique_key: Option<String>,
    /// Start after this delay: 30s, 15m, 1h30m, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_length, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Start at this time: 2026-11-15T08:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    at: Option<Timestamp>,
    /// Start a graph that is stored in the store
    #[arg(long, conflicts_with_all = ["version", "step"])]
    graph: bool,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let given = match &self.state {
            Some(state) => Some(document(state)?),
            None => Given::read(&self.values)?.one()?,
        };
        let abide = context.write().await?;
        let start = self.start(&abide, given.unwrap_or_default()).await?;
        let key = start.key.clone();
        let id = match begin(&abide, Wanted::Start(start.into())).await?? {
            Started::New(id) => id,
            Started::Duplicate(holder) => return Err(duplicate(holder)),
        };
        let out = context.out;
        if out.json {
            out.document(&StartedView { id, key, run: 1 })?;
            return Ok(Exit::Done);
        }
        out.line(&id.to_string())?;
        let target = key.map_or_else(|| id.to_string(), |key| shell_quoted(key.as_str()));
        out.say(&format!("started; to look on: abide watch {target}"));
        let description = abide.describe(id).await?;
        if description.is_some_and(|description| description.liveness == Liveness::WaitingForWorker)
        {
            out.say("no live worker has code for it yet: it waits for one");
        }
        Ok(Exit::Done)
    }

    async fn start(&self, abide: &Abide, state: Json) -> Result<abide::model::Start> {
        let mut start = match self.graph {
            true => graph(abide, &self.machine, &state).await?,
            false => abide::model::Start::of(Name::new(&self.machine)?, state),
        };
        let name = |text: &Option<String>| text.as_ref().map(Name::new).transpose();
        start.key = self.key.as_ref().map(Key::new).transpose()?;
        if !self.graph {
            start.version = self.version;
            start.step = name(&self.step)?;
        }
        if let Some(queue) = name(&self.queue)? {
            start.queue = Some(queue);
        }
        start.priority = Priority(self.priority);
        start.partition_key = self.partition.as_ref().map(Key::new).transpose()?;
        start.unique_key = self
            .unique_key
            .as_ref()
            .map(|key| UniqueKey::new(key.as_bytes()))
            .transpose()?;
        start.when = match (self.delay, self.at) {
            (Some(delay), _) => When::After(delay),
            (None, Some(moment)) => When::At(moment),
            (None, None) => When::Now,
        };
        Ok(start)
    }
}

/// A run of a graph that was put into the store.
async fn graph(abide: &Abide, name: &str, input: &Json) -> Result<abide::model::Start> {
    let Some(graph) = abide.graph(name).await? else {
        let text = format!("no graph {name:?} was put into this store");
        return Err(Failure::new(Exit::Refused, "not_found", text).next("abide machines"));
    };
    let input = input
        .to()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let spec = abide::client::new_start(graph, input);
    Ok(Result::<abide::model::Start, abide::Error>::from(spec)?)
}
