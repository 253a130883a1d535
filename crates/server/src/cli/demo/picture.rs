//! The demo on a terminal: a picture that is drawn over itself, above the line where one types.

use std::collections::VecDeque;
use std::time::Duration;

use crate::cli::failure::Result;
use crate::cli::out::{Out, Tone};
use crate::cli::table::{Table, fixed, number};
use crate::cli::text::{clean, counted, cut};
use crate::cli::times::length;
use crate::demo::{AGAIN, Event, Member, Shown};

/// How many things that happened to workers are shown, and where there is little room.
const HAPPENED: usize = 6;
const HAPPENED_MIN: usize = 2;
/// How many instances that ended are shown.
const ENDED: usize = 2;
/// The input line.
const PROMPT: &str = "kill a worker: its number and Enter; end: q and Enter > ";

/// The text on the terminal.
pub struct Picture {
    out: Out,
    /// The command line that calls the binary for this demo.
    abide: String,
    happened: VecDeque<(Tone, String)>,
    ended: VecDeque<String>,
    /// How many lines are above the one where one types.
    drawn: usize,
    /// The size of the terminal at that time.
    size: (usize, usize),
    /// `true` if Enter was pressed since.
    entered: bool,
    hint: Option<String>,
}

impl Picture {
    /// An empty one.
    pub fn new(out: Out, abide: &str) -> Self {
        Self {
            out,
            abide: abide.to_owned(),
            happened: VecDeque::new(),
            ended: VecDeque::new(),
            drawn: 0,
            size: size(),
            entered: false,
            hint: None,
        }
    }

    /// Records an event.
    pub fn note(&mut self, at: Duration, event: &Event) {
        let text = clean(event.text()).into_owned();
        let tone = match event {
            Event::Died(_) => Tone::Careful,
            Event::WentOn(_) => Tone::Good,
            Event::Back(_) => Tone::Quiet,
            Event::Ended(_) => {
                self.ended.push_back(text);
                let surplus = self.ended.len().saturating_sub(ENDED);
                self.ended.drain(..surplus);
                return;
            }
        };
        self.happened
            .push_back((tone, format!("{}  {text}", stamp(at))));
        let surplus = self.happened.len().saturating_sub(HAPPENED);
        self.happened.drain(..surplus);
    }

    /// Records that the user typed a line, and a hint about it.
    pub fn entered(&mut self, hint: Option<String>) {
        self.entered = true;
        self.hint = hint;
    }

    /// Draws it over what was drawn before.
    pub fn draw(&mut self, at: Duration, shown: &Shown) -> Result<()> {
        let size = size();
        let (columns, rows) = size;
        let width = columns.saturating_sub(1);
        let room = rows.saturating_sub(1).max(1);
        let mut lines = self.lines(at, shown, width, HAPPENED);
        let surplus = lines.len().saturating_sub(room);
        if surplus > 0 {
            let happened = HAPPENED.saturating_sub(surplus).max(HAPPENED_MIN);
            lines = self.lines(at, shown, width, happened);
            lines.truncate(room);
        }
        let mut screen = String::new();
        let in_place = self.drawn == lines.len() && self.size == size && !self.entered;
        if in_place {
            // The typed text stays in place.
            screen.push_str(&format!("\u{1b}7\r\u{1b}[{}A", self.drawn));
        } else if columns < self.size.0 {
            // Lines that were as wide as the terminal are now two.
            screen.push_str("\u{1b}[2J\u{1b}[H");
        } else {
            let up = self.drawn + usize::from(self.entered);
            screen.push('\r');
            if up > 0 {
                screen.push_str(&format!("\u{1b}[{up}A"));
            }
            screen.push_str("\u{1b}[J");
        }
        for (tone, line) in &lines {
            let line = cut(line, width);
            match tone {
                Some(tone) => screen.push_str(&self.out.paint(*tone, &line)),
                None => screen.push_str(&line),
            }
            screen.push_str("\u{1b}[K\n");
        }
        match in_place {
            true => screen.push_str("\u{1b}8"),
            false => {
                let prompt = self.hint.take().unwrap_or_else(|| PROMPT.to_owned());
                screen.push_str(&self.out.paint(Tone::Quiet, &cut(&prompt, width)));
            }
        }
        (self.drawn, self.size, self.entered) = (lines.len(), size, false);
        self.out.raw(&screen)
    }

    fn lines(
        &self,
        at: Duration,
        shown: &Shown,
        width: usize,
        most: usize,
    ) -> Vec<(Option<Tone>, String)> {
        let mut lines = vec![(None, String::new())];
        let mut table = workers(&shown.workers).lines(Some(width)).into_iter();
        lines.extend(table.next().map(|head| (Some(Tone::Strong), head)));
        let tone = |member: &Member| member.pid.is_none().then_some(Tone::Careful);
        lines.extend(shown.workers.iter().map(tone).zip(table));
        lines.push((None, String::new()));
        lines.push((Some(Tone::Strong), counts(at, shown)));
        let ended = self.ended.iter();
        let ended = ended.map(|text| (Some(Tone::Quiet), format!("  {text}")));
        lines.extend(padded(ended, ENDED));
        lines.push((None, String::new()));
        if self.happened.is_empty() {
            let none = "No worker has died yet. Kill one.".to_owned();
            lines.push((Some(Tone::Quiet), none));
        }
        let older = self.happened.len().saturating_sub(most);
        let happened = self.happened.iter().skip(older).cloned();
        lines.extend(happened.map(|(tone, line)| (Some(tone), line)));
        lines.push((None, String::new()));
        let deed = shown.for_you.first();
        let (text, command) = match (shown.for_you.len() as u64, deed) {
            (count, Some(deed)) => (
                format!("{} for you; the oldest for this:", waiting(count)),
                format!("  {} {deed}", self.abide),
            ),
            _ => ("Nothing waits for you.".to_owned(), String::new()),
        };
        lines.push((None, text));
        lines.push((None, clean(&command).into_owned()));
        lines
    }
}

fn waiting(count: u64) -> String {
    counted(count, "instance waits", "instances wait")
}

/// The same number of lines each time, so that nothing jumps.
fn padded(
    lines: impl IntoIterator<Item = (Option<Tone>, String)>,
    count: usize,
) -> impl Iterator<Item = (Option<Tone>, String)> {
    let empty = std::iter::repeat((None, String::new()));
    lines.into_iter().chain(empty).take(count)
}

fn workers(members: &[Member]) -> Table {
    let mut table = Table::new([
        number("worker"),
        number("process"),
        fixed("now"),
        fixed("for"),
        number("killed"),
    ]);
    for member in members {
        let now = match (member.pid, member.is_ready, member.running) {
            (None, ..) => {
                let left = AGAIN.as_secs().saturating_sub(member.since_s);
                format!("dead, back in {left} s")
            }
            (_, false, _) => "starts".to_owned(),
            (_, _, 0) => "is idle".to_owned(),
            (_, _, 1) => "runs 1 step".to_owned(),
            (_, _, count) => format!("runs {count} steps"),
        };
        table.row([
            member.number.to_string(),
            member
                .pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            format!("{now:<18}"),
            format!("{:<12}", alive(member.since_s)),
            member.killed.to_string(),
        ]);
    }
    table
}

fn alive(seconds: u64) -> String {
    match seconds {
        0 => "0 s".to_owned(),
        seconds => length(Duration::from_secs(seconds)),
    }
}

/// Counts of instances by state, on one line.
pub fn counts(at: Duration, shown: &Shown) -> String {
    format!(
        "{}  {} run · {} ready · {} wait · {} ended · {:.0} steps a second",
        stamp(at),
        shown.running,
        shown.ready,
        shown.waiting,
        shown.ended,
        shown.steps_per_second
    )
}

/// Minutes and seconds since the beginning.
pub fn stamp(at: Duration) -> String {
    let seconds = at.as_secs();
    format!("{:>2}:{:02}", seconds / 60, seconds % 60)
}

/// The columns and rows of the terminal.
fn size() -> (usize, usize) {
    let reported = terminal_size::terminal_size();
    reported.map_or((80, 24), |(columns, rows)| {
        (usize::from(columns.0).max(20), usize::from(rows.0).max(4))
    })
}
