//! Output: data to standard output, messages to standard error.

use std::io::{self, IsTerminal, Write};

use abide::model::Json;
use abide::time::Timestamp;
use serde::Serialize;

use super::failure::Result;
use super::text::{clean, clean_lines};
use super::times::exact;

/// The output, and its format.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// `true` to print JSON.
    pub json: bool,
    /// `true` if standard output is a terminal.
    pub terminal: bool,
    /// `true` to use colours.
    pub colour: bool,
    /// The maximum width of a line; `None` if standard output is not a terminal.
    pub width: Option<usize>,
    /// `true` to show times in UTC.
    pub utc: bool,
}

/// The emphasis of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Everything is fine.
    Good,
    /// Something needs attention.
    Bad,
    /// A warning.
    Careful,
    /// Less important.
    Quiet,
    /// A heading.
    Strong,
}

/// The width of a terminal that does not report its own.
const WIDTH: usize = 80;

impl Out {
    /// Determines the format from the flags, the environment and the terminal.
    pub fn new(json: bool, utc: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok());
        let width = terminal.then(|| {
            let reported = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
            columns.or(reported).unwrap_or(WIDTH).max(20)
        });
        Self {
            json,
            terminal,
            colour: terminal && !set("NO_COLOR") && !dumb,
            width,
            utc,
        }
    }

    /// Formats a time, in UTC or the local time zone as configured.
    pub fn exact(&self, moment: Timestamp) -> String {
        exact(moment, self.utc)
    }

    /// Prints a line of data. Control characters are escaped.
    pub fn line(&self, line: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", clean_lines(line))?;
        Ok(())
    }

    /// Colours a text that is already clean.
    pub fn paint(&self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "1;31",
            Tone::Careful => "33",
            Tone::Quiet => "2",
            Tone::Strong => "1",
        };
        match self.colour {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }

    /// Prints a text unchanged, including escape sequences.
    pub fn raw(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Prints one JSON document: formatted on a terminal, otherwise on one line.
    pub fn document(&self, document: &impl Serialize) -> Result<()> {
        let json = Json::of(document).map_err(|error| abide::Error::Broken(error.to_string()))?;
        let text = match self.terminal {
            true => clean_lines(&super::text::pretty(json.as_str())).into_owned(),
            false => json.as_str().to_owned(),
        };
        self.raw(&format!("{text}\n"))
    }

    /// Prints one JSON document of many, on one line.
    pub fn entry(&self, document: &impl Serialize) -> Result<()> {
        let json = Json::of(document).map_err(|error| abide::Error::Broken(error.to_string()))?;
        self.raw(&format!("{json}\n"))
    }

    /// Prints a message to standard error. Ignores write errors.
    pub fn say(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", clean(text));
    }

    /// Prints a message that is already clean.
    pub fn tell(&self, text: &str) {
        let _ = write!(io::stderr().lock(), "{text}");
    }

    /// Shows progress, if standard error is a terminal. The next call overwrites the line.
    pub fn progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", clean(text));
        }
    }

    /// Clears the line that shows progress.
    pub fn progress_ends(&self) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}
