//! Where output goes: data to standard output, talk to standard error.

use std::io::{self, IsTerminal, Write};

use abide::Json;
use serde::Serialize;

use super::failure::Result;
use super::text::{clean, clean_lines};

/// Where output goes, and what it may look like there.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// Whether to print JSON.
    pub json: bool,
    /// Whether standard output is a terminal.
    pub terminal: bool,
    /// Whether colours are wanted.
    pub colour: bool,
    /// How wide a line may be; none when nobody looks at it.
    pub width: Option<usize>,
}

/// How a text is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// Somebody should look.
    Bad,
    /// It is worth a look.
    Careful,
    /// Beside the point.
    Quiet,
    /// A heading.
    Strong,
}

/// The width of a terminal that does not say.
const WIDTH: usize = 80;

impl Out {
    /// What there is.
    pub fn new(json: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let columns = std::env::var("COLUMNS")
            .ok()
            .and_then(|columns| columns.parse().ok());
        let width = terminal.then(|| {
            let asked = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
            columns.or(asked).unwrap_or(WIDTH).max(20)
        });
        Self {
            json,
            terminal,
            colour: terminal && !set("NO_COLOR") && !dumb,
            width,
        }
    }

    /// Prints a line of data; what is not ours in it is cleaned by who made it.
    pub fn line(&self, line: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", clean_lines(line))?;
        Ok(())
    }

    /// A clean text in a tone.
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

    /// Prints what is already as it should be, escapes and all.
    pub fn raw(&self, text: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Prints one JSON document: laid out for a terminal, on one line for a program.
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

    /// Says something to whoever looks on; nobody is bothered when that cannot be written.
    pub fn say(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{}", clean(text));
    }

    /// Says what is already clean.
    pub fn tell(&self, text: &str) {
        let _ = write!(io::stderr().lock(), "{text}");
    }

    /// Shows how far it is, on a terminal; the line is written over by the next.
    pub fn progress(&self, text: &str) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K{}", clean(text));
        }
    }

    /// Takes the line that shows how far it is away.
    pub fn progress_ends(&self) {
        if io::stderr().is_terminal() {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}
