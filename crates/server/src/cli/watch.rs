//! `abide watch`: an instance, live.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use abide::client::Description;
use abide::history::Entry;
use abide::{Abide, Error, InstanceId, Status};

use super::context::{Context, described, now};
use super::failure::{Exit, Failure, Result};
use super::health::{Around, name_of, sentence};
use super::history::describe_event;
use super::out::{Out, Tone};
use super::result::newest;
use super::show::{around, tail, waiters};
use super::text::{clean, cut_middle, wrapped};
use crate::http::dto::InstanceView;
use abide_kernel::model::AT_ONCE;

/// Show an instance live, until it ends
///
/// On a terminal it redraws; in a pipe it prints a line for each event. Exits with 0 when the instance is done, with 1 when
/// it failed or was cancelled. One that continues as new is followed. A store that goes away is waited for, a minute long.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide watch order:42\n",
    "  abide watch order:42 --json | jq -r .status\n",
    "  abide start checkout --key order:42 && abide watch order:42"
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// Number of history events to begin with
    #[arg(long, value_name = "N", default_value_t = 10)]
    history: usize,
}

/// The poll interval when there is no notification.
const POLL: Duration = Duration::from_millis(500);
/// How long a store may be away: as long as a server takes to be started again, or moved.
const PATIENCE: Duration = Duration::from_secs(60);
/// Minimum time between two reads.
const PAUSE: Duration = Duration::from_millis(50);

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let abide = context.open_existing().await?;
        let mut listener = abide.store().listen();
        let mut description = described(&abide, &self.target).await?;
        let mut watch = Watch::new(context.out, self.history);
        loop {
            watch.see(&abide, &description).await?;
            let one = &description.instance;
            match one.status {
                Status::Continued => {
                    let next = newest(&abide, one).await?.filter(|run| run.id != one.id);
                    if let Some(next) = next {
                        description = described(&abide, &next.id.to_string()).await?;
                        continue;
                    }
                    return Ok(Exit::Done);
                }
                Status::Done => return Ok(Exit::Done),
                status if status.is_terminal() => return Ok(Exit::Refused),
                _ => {}
            }
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                _ = listener.next() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            let id = one.id;
            let there = watch.describe_again(&abide, id).await?;
            description = there.ok_or_else(|| Failure::nothing_at(&id.to_string()))?;
        }
    }
}

/// The state of the display.
struct Watch {
    out: Out,
    /// How many events are shown to begin with, and on a terminal at most.
    most: usize,
    /// The run that is shown, and the last of its events that was.
    run: Option<(InstanceId, u32)>,
    /// The status as shown.
    stand: String,
    /// The events on the terminal.
    events: VecDeque<Entry>,
    /// How many lines are on the terminal.
    drawn: usize,
}

impl Watch {
    fn new(out: Out, most: usize) -> Self {
        Self {
            out,
            most,
            run: None,
            stand: String::new(),
            events: VecDeque::new(),
            drawn: 0,
        }
    }

    /// Reads the instance again. Waits for a store that is unavailable.
    async fn describe_again(
        &mut self,
        abide: &Abide,
        id: InstanceId,
    ) -> Result<Option<Description>> {
        let began = Instant::now();
        let mut is_reported = false;
        loop {
            match abide.describe(id).await {
                Err(Error::Unavailable(why)) if began.elapsed() < PATIENCE => {
                    if !is_reported {
                        self.out.say(&format!("waiting: {}", clean(&why)));
                        self.drawn = 0;
                        is_reported = true;
                    }
                    tokio::time::sleep(POLL).await;
                }
                seen => return Ok(seen?),
            }
        }
    }

    /// Shows what has changed.
    async fn see(&mut self, abide: &Abide, description: &Description) -> Result<()> {
        let one = &description.instance;
        let begun = self.run.filter(|(id, _)| *id == one.id);
        let fresh = match begun {
            None => tail(abide, description, self.most).await?,
            Some((_, last)) if one.history_seq > last => since(abide, one.id, last).await?,
            Some(_) => Vec::new(),
        };
        let last = fresh
            .last()
            .map(|entry| entry.seq)
            .or(begun.map(|(_, last)| last));
        self.run = Some((one.id, last.unwrap_or_default()));
        let stand = stand(description);
        let moved = stand != self.stand;
        self.stand = stand;
        if self.out.json {
            if moved || !fresh.is_empty() {
                let waiters = waiters(abide, description).await?;
                self.out
                    .entry(&InstanceView::new(description.clone(), waiters))?;
            }
            return Ok(());
        }
        if self.out.terminal {
            self.events.extend(fresh);
            let surplus = self.events.len().saturating_sub(self.most);
            self.events.drain(..surplus);
            let around = around(abide, description).await?;
            return self.redraw(description, &around, now(abide));
        }
        for entry in &fresh {
            self.out.line(&line(one.id, entry, &self.out))?;
        }
        if moved {
            let around = around(abide, description).await?;
            let (_, text) = sentence(description, &around, now(abide));
            self.out.line(&format!(
                "{} {} {}",
                self.out.exact(now(abide)),
                one.id,
                clean(&text)
            ))?;
        }
        Ok(())
    }

    /// Draws over what was drawn before.
    fn redraw(
        &mut self,
        description: &Description,
        around: &Around,
        now: abide::time::Timestamp,
    ) -> Result<()> {
        let width = self.out.width.unwrap_or(80);
        let one = &description.instance;
        let (tone, text) = sentence(description, around, now);
        let mut lines: Vec<(Tone, String)> = vec![(Tone::Strong, name_of(one))];
        lines.extend(
            wrapped(&clean(&text), width.saturating_sub(1))
                .into_iter()
                .map(|line| (tone, line)),
        );
        let step = format!(
            "{} · step {} · number {}",
            one.status, one.step, one.step_seq
        );
        lines.push((Tone::Quiet, clean(&step).into_owned()));
        lines.extend(self.events.iter().map(|entry| {
            let line = format!(
                "{:>5} {} {}",
                entry.seq,
                entry.what.kind(),
                describe_event(entry, &self.out)
            );
            (Tone::Quiet, line)
        }));
        let mut screen = String::new();
        if self.drawn > 0 {
            screen.push_str(&format!("\u{1b}[{}F", self.drawn));
        }
        screen.push_str("\u{1b}[J");
        for (tone, line) in &lines {
            let line = cut_middle(line, width.saturating_sub(1));
            screen.push_str(&self.out.paint(*tone, &line));
            screen.push('\n');
        }
        self.drawn = lines.len();
        self.out.raw(&screen)
    }
}

/// The part of an instance that the display depends on.
fn stand(description: &Description) -> String {
    let one = &description.instance;
    format!(
        "{} {} {} {} {} {:?} {:?} {} {} {:?}",
        one.id,
        one.status,
        one.step_seq,
        one.attempt,
        one.deaths,
        one.wait_id(),
        one.resume_source(),
        one.inbox.sequence,
        description.liveness.name(),
        description.reason
    )
}

/// The events of a run after one of them.
async fn since(abide: &Abide, id: InstanceId, after: u32) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut from = after;
    loop {
        let page = abide.history_page(id, from, AT_ONCE).await?;
        entries.extend(page.items.into_iter().filter(|entry| entry.seq > after));
        match page.next {
            Some(next) => from = next,
            None => return Ok(entries),
        }
    }
}

fn line(id: InstanceId, entry: &Entry, out: &Out) -> String {
    let (at, kind) = (out.exact(entry.at), entry.what.kind());
    let line = format!("{at} {id} {kind} {}", describe_event(entry, out));
    line.trim_end().to_owned()
}
