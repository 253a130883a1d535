//! `abide signals`: the record of every signal and update, accepted or not.

use abide::model::{Command, CommandKind, CommandStatus, Key, Name, Target};
use abide::store::CommandFilter;

use super::context::{Context, now, target_of};
use super::failure::{Exit, Result};
use super::out::Out;
use super::paging::{Paging, remark};
use super::shapes::Record;
use super::table::{Table, fixed, shrinking};
use super::times::relative;

/// List signals and updates, including held, refused and expired ones, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide signals --target order:42\n",
    "  abide signals --status rejected --limit 200\n",
    "  abide signals --status held --json"
))]
pub struct Args {
    /// Only those that were sent to this instance, or are held for this key
    #[arg(long)]
    target: Option<String>,
    /// Only those with this status
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(CommandStatus::ALL.map(CommandStatus::name)))]
    status: Option<String>,
    /// Only those with this name
    #[arg(long)]
    name: Option<String>,
    /// Only signals, or only updates
    #[arg(long, value_parser = ["signal", "update"])]
    kind: Option<String>,
    #[command(flatten)]
    paging: Paging,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let target = self.target.as_deref().map(target_of).transpose()?;
        let abide = context.open_existing().await?;
        let mut filter = CommandFilter {
            name: self.name.as_ref().map(Name::new).transpose()?,
            kind: self.kind.as_deref().map(|kind| match kind {
                "update" => CommandKind::Update,
                _ => CommandKind::Signal,
            }),
            status: self.status.as_deref().and_then(CommandStatus::named),
            ..CommandFilter::default()
        };
        match target {
            None => {}
            Some(target) => match (abide.get(target.clone()).await?, target) {
                (Some(one), _) => filter.chain = Some(one.chain()),
                // No instance has the key: list what is held for it, or was sent to a deleted instance.
                (None, Target::Key(key)) => filter.key = Some(Key::clone(&key)),
                (None, Target::Id(id)) => filter.instance = Some(id),
            },
        }
        let listed = self
            .paging
            .gather("signals", async |before, limit| {
                Ok(abide.list_commands(&filter, before, limit).await?)
            })
            .await?;
        let out = context.out;
        if out.json {
            out.document(&listed.map(Record::from))?;
            return Ok(Exit::Done);
        }
        if !listed.items.is_empty() {
            print(&out, &listed.items, now(&abide))?;
        }
        remark(&out, &listed, "no signals or updates match");
        Ok(Exit::Done)
    }
}

/// Prints them as a table.
pub fn print(out: &Out, commands: &[Command], now: abide::time::Timestamp) -> Result<()> {
    let mut table = Table::new([
        fixed("id"),
        fixed("number").leaves(6),
        fixed("kind").leaves(5),
        shrinking("name"),
        fixed("status"),
        shrinking("instance").leaves(4),
        shrinking("arguments").leaves(2),
        fixed("received").leaves(3),
    ]);
    for one in commands {
        let status = match one.rejection {
            Some(why) => why.reason().replace('_', " "),
            None => one.status.to_string(),
        };
        let (kind, name) = match (one.kind, one.name.event_type()) {
            (_, Some(event_type)) => ("event", event_type.to_owned()),
            (CommandKind::Signal, _) => ("signal", one.name.to_string()),
            (CommandKind::Update, _) => ("update", one.name.to_string()),
            (CommandKind::Cancel, _) => ("cancel", one.name.to_string()),
        };
        let instance = match (one.instance, &one.key) {
            (Some(id), _) => id.to_string(),
            (None, Some(key)) => format!("for {key}"),
            (None, None) => "-".to_owned(),
        };
        table.row([
            one.id.to_string(),
            one.command_sequence
                .map_or_else(|| "-".to_owned(), |number| number.to_string()),
            kind.to_owned(),
            name,
            status,
            instance,
            one.arguments.to_string(),
            relative(one.received_at, now),
        ]);
    }
    table.print(out)
}
