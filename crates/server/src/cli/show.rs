//! `abide show`: the wait and the health of an instance, then all its details.

use abide::client::Description;
use abide::history::Entry;
use abide::model::{CommandKind, Liveness, Waiter, Worker};
use abide::store::{CommandFilter, CommandPage, Filter, Page};
use abide::{Abide, Status};

use abide_kernel::model::AT_ONCE;
use abide_kernel::rules::deaths::times;

use super::context::{Context, described, now};
use super::failure::{Exit, Result};
use super::health::{Around, name_of, sentence};
use super::history::describe_event;
use super::list;
use super::out::{Out, Tone};
use super::paging::Listed;
use super::result::newest;
use super::shapes::Whole;
use super::table::{Table, fixed, number, wrapping};
use super::text::{clean, clean_lines, counted, cut_middle, pretty, wrapped};
use super::times::relative;
use crate::http::dto::InstanceView;
use crate::http::history::EntryView;

/// Show an instance: what it waits for, its health, and all its details
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide show order:42\n",
    "  abide show 17 --history 200\n",
    "  abide show order:42 --json | jq .wait"
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// Number of history events to show, the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    history: usize,
}

/// How many signals and children are shown.
const SHOWN: usize = 20;
/// How much of a state is shown on a terminal, in lines.
const STATE_LINES: usize = 60;

/// All that is shown of an instance.
struct Seen {
    description: Description,
    around: Around,
    history: Vec<Entry>,
    commands: CommandPage,
    children: Page<Description>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let description = described(&abide, &self.target).await?;
        let around = around(&abide, &description).await?;
        let id = description.instance.id;
        let of_chain = CommandFilter {
            chain: Some(description.instance.chain()),
            ..CommandFilter::default()
        };
        let of_parent = Filter {
            parent: Some(id),
            ..Filter::default()
        };
        let seen = Seen {
            around,
            history: tail(&abide, &description, self.history).await?,
            commands: abide.list_commands(&of_chain, None, SHOWN).await?,
            children: abide.describe_page(&of_parent, None, SHOWN).await?,
            description,
        };
        match context.out.json {
            true => context.out.document(&document(&abide, seen).await?)?,
            false => print(context, &abide, &seen)?,
        }
        Ok(Exit::Done)
    }
}

/// The data that the sentence needs besides an instance.
pub async fn around(abide: &Abide, description: &Description) -> Result<Around> {
    let one = &description.instance;
    let workers: Vec<Worker> = match one.status.is_terminal() {
        true => Vec::new(),
        false => abide.workers().await?,
    };
    let newer = match one.status {
        Status::Continued => newest(abide, one)
            .await?
            .map(|run| run.id)
            .filter(|id| *id != one.id),
        _ => None,
    };
    Ok(Around {
        workers,
        waiters: waiters(abide, description).await?,
        newer,
    })
}

/// The waiters of an instance's waits for events.
pub async fn waiters(abide: &Abide, description: &Description) -> Result<Vec<Waiter>> {
    let waits = description
        .wait
        .as_ref()
        .map(|wait| wait.names.iter().any(|name| name.event_type().is_some()));
    if waits != Some(true) {
        return Ok(Vec::new());
    }
    Ok(abide.event_waits_of(description.instance.id).await?)
}

/// The newest events of an instance's history, oldest first.
pub async fn tail(abide: &Abide, description: &Description, count: usize) -> Result<Vec<Entry>> {
    let one = &description.instance;
    if !one.history || count == 0 {
        return Ok(Vec::new());
    }
    let mut after = one
        .history_seq
        .saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
    let mut entries = Vec::new();
    loop {
        let page = abide.history_page(one.id, after, AT_ONCE).await?;
        entries.extend(page.items);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    // Rows hold the events of whole commits, so that there may be more than requested.
    let surplus = entries.len().saturating_sub(count);
    Ok(entries.split_off(surplus))
}

async fn document(abide: &Abide, seen: Seen) -> Result<Whole> {
    let (updates, signals): (Vec<_>, Vec<_>) = seen
        .commands
        .items
        .into_iter()
        .partition(|one| one.kind == CommandKind::Update);
    let mut children = Vec::new();
    for description in seen.children.items {
        let waiters = waiters(abide, &description).await?;
        children.push(InstanceView::new(description, waiters));
    }
    Ok(Whole {
        instance: InstanceView::new(seen.description, seen.around.waiters),
        history: seen.history.iter().map(EntryView::from).collect(),
        signals: signals.into_iter().map(Into::into).collect(),
        updates: updates.into_iter().map(Into::into).collect(),
        children,
    })
}

fn print(context: &Context, abide: &Abide, seen: &Seen) -> Result<()> {
    let out = context.out;
    let now = now(abide);
    let one = &seen.description.instance;
    let (tone, text) = sentence(&seen.description, &seen.around, now);
    headline(&out, &name_of(one), tone, &clean(&text))?;
    identity(&out, seen, now)?;
    let heading = |text: &str| out.raw(&format!("\n{}\n", out.paint(Tone::Strong, text)));
    heading("state")?;
    let (state, cut_off) = first_lines(
        &pretty(one.state.as_str()),
        out.terminal.then_some(STATE_LINES),
    );
    out.line(&indented(&state))?;
    if cut_off > 0 {
        out.say(&format!("  … {cut_off} more lines: --json, or | less"));
    }
    if let Some(result) = &one.result {
        heading("result")?;
        out.line(&indented(&pretty(result.as_str())))?;
    }
    if !seen.history.is_empty() {
        let shown = seen.history.len();
        heading(&match one.history_seq as usize > shown {
            true => format!("history (the last {shown} of {})", one.history_seq),
            false => "history".to_owned(),
        })?;
        print_history(&out, &seen.history)?;
    }
    if !seen.commands.items.is_empty() {
        heading(&more("signals and updates", seen.commands.next.is_some()))?;
        super::signals::print(&out, &seen.commands.items, now)?;
    }
    if !seen.children.items.is_empty() {
        heading(&more("children", seen.children.next.is_some()))?;
        let listed = Listed {
            items: seen.children.items.clone(),
            next_cursor: None,
        };
        list::print(context, abide, &listed)?;
        if seen.children.next.is_some() {
            out.say(&format!("all of them: abide list --parent {}", one.id));
        }
    }
    Ok(())
}

/// Prints the most important line; on a terminal it is broken between words.
fn headline(out: &Out, name: &str, tone: Tone, text: &str) -> Result<()> {
    let whole = format!("{name} {text}");
    let lines = match out.width {
        Some(width) => wrapped(&whole, width),
        None => vec![whole],
    };
    for (index, line) in lines.iter().enumerate() {
        let painted = match line.strip_prefix(name).filter(|_| index == 0) {
            Some(rest) => format!("{}{}", out.paint(Tone::Strong, name), out.paint(tone, rest)),
            None => out.paint(tone, line),
        };
        out.raw(&format!("{painted}\n"))?;
    }
    out.raw("\n")
}

fn more(what: &str, is_more: bool) -> String {
    match is_more {
        true => format!("{what} (the newest {SHOWN})"),
        false => what.to_owned(),
    }
}

/// The instance, and its status.
fn identity(out: &Out, seen: &Seen, now: abide::time::Timestamp) -> Result<()> {
    let one = &seen.description.instance;
    let exact = |moment| format!("{} ({})", out.exact(moment), relative(moment, now));
    let mut lines: Vec<(&str, String)> = Vec::new();
    lines.push(("id", one.id.to_string()));
    lines.extend(one.key.as_ref().map(|key| ("key", key.to_string())));
    lines.push((
        "machine",
        format!("{} version {}", one.machine, one.version),
    ));
    let attempt = match one.attempt {
        0 => String::new(),
        attempt => format!(", attempt {attempt}"),
    };
    let deaths = match one.deaths {
        0 => String::new(),
        deaths => format!(", its worker died {}", times(deaths)),
    };
    lines.push((
        "step",
        format!("{} (number {}{attempt}{deaths})", one.step, one.step_seq),
    ));
    lines.push((
        "status",
        match is_shown_by_status(one.status, seen.description.liveness) {
            true => one.status.to_string(),
            false => format!(
                "{} · {}",
                one.status,
                seen.description.liveness.name().replace('_', " ")
            ),
        },
    ));
    lines.push(("queue", format!("{}, priority {}", one.queue, one.priority)));
    lines.extend(
        one.partition_key
            .as_ref()
            .map(|key| ("partition", key.to_string())),
    );
    if one.run.number > 1 {
        lines.push((
            "run",
            format!(
                "{} of the chain of instance {}",
                one.run.number,
                one.chain()
            ),
        ));
    }
    lines.extend(one.parent.map(|parent| ("parent", parent.to_string())));
    let worker = one.worker.map(|id| {
        let known = seen.around.workers.iter().find(|worker| worker.id == id);
        known.map_or_else(|| format!("number {id}"), |worker| worker.name.to_string())
    });
    lines.extend(worker.map(|worker| ("worker", worker)));
    let wait = seen.description.wait.as_ref();
    if let Some(wait) = wait {
        lines.extend(wait.since.map(|since| ("waits since", exact(since))));
        lines.extend(wait.deadline.map(|deadline| ("deadline", exact(deadline))));
        for one in &wait.waits {
            let taken = one.command_id.map(|id| format!(", takes command {id}"));
            let taken = taken.unwrap_or_default();
            let named = one.name.as_ref().map(|name| format!(" {name}"));
            let (kind, named) = (one.kind.name(), named.unwrap_or_default());
            let text = format!(
                "{kind}{named}, operation {}, id {}{taken}",
                one.operation, one.id
            );
            lines.push(("wait", text));
        }
        lines.extend(
            wait.resume_source
                .map(|source| ("woken by", resumed_by(source))),
        );
    }
    let is_open = wait.is_some_and(|wait| wait.resume_source.is_none());
    if !is_open && !one.status.is_terminal() {
        let label = match one.status {
            Status::Runnable | Status::Executing => "ready since",
            _ => "due",
        };
        lines.extend(one.due_at.map(|due| (label, exact(due))));
    }
    if one.inbox.signals + one.inbox.updates > 0 {
        let signals = counted(u64::from(one.inbox.signals), "signal", "signals");
        let updates = counted(u64::from(one.inbox.updates), "update", "updates");
        lines.push(("pending", format!("{signals}, {updates}")));
    }
    lines.push(("created", exact(one.created_at)));
    lines.push(("updated", exact(one.updated_at)));
    lines.extend(one.finished_at.map(|moment| ("finished", exact(moment))));
    lines.extend(
        one.last_error
            .as_ref()
            .map(|error| ("last error", cut_middle(error, 2_000))),
    );
    if seen.description.continue_as_new_recommended {
        lines.push((
            "history",
            format!(
                "{} events: it does well to continue as new",
                one.history_seq
            ),
        ));
    }
    for (name, value) in lines {
        out.raw(&format!(
            "  {} {}\n",
            out.paint(Tone::Quiet, &format!("{name:<11}")),
            clean(&value)
        ))?;
    }
    Ok(())
}

/// `true` if a status already shows what its liveness does.
fn is_shown_by_status(status: Status, liveness: Liveness) -> bool {
    match liveness {
        Liveness::Closed => status.is_terminal(),
        Liveness::Scheduled => matches!(status, Status::Scheduled | Status::Reserved),
        Liveness::Ready => status == Status::Runnable,
        Liveness::Running => status == Status::Executing,
        Liveness::WaitingForSignal => status == Status::AwaitingSignal,
        Liveness::WaitingForChildren => status == Status::AwaitingChildren,
        _ => false,
    }
}

/// The cause that ended a wait, in words.
pub fn resumed_by(source: abide::model::ResumeSource) -> String {
    match (source.kind, source.command_id) {
        (abide::model::ResumeKind::Timeout, _) => "its deadline".to_owned(),
        (abide::model::ResumeKind::Children, _) => "its children".to_owned(),
        (kind, Some(id)) => format!("{} {id}", kind.name()),
        (kind, None) => kind.name().to_owned(),
    }
}

/// Prints the events of a history, one line each.
pub fn print_history(out: &Out, entries: &[Entry]) -> Result<()> {
    let mut table = Table::new([
        number("seq"),
        fixed("at").leaves(1),
        fixed("event"),
        wrapping("what"),
    ]);
    for entry in entries {
        table.row([
            entry.seq.to_string(),
            out.exact(entry.at),
            entry.what.kind().to_owned(),
            describe_event(entry, out),
        ]);
    }
    table.print(out)
}

fn indented(text: &str) -> String {
    let lines = clean_lines(text)
        .lines()
        .map(|line| format!("  {line}"))
        .collect::<Vec<_>>();
    lines.join("\n")
}

/// The first lines of a text, and how many there are more.
fn first_lines(text: &str, most: Option<usize>) -> (String, usize) {
    let count = text.lines().count();
    let most = most.unwrap_or(count);
    let first: Vec<&str> = text.lines().take(most).collect();
    (first.join("\n"), count.saturating_sub(most))
}
