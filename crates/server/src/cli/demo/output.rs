//! The output of the demo: a picture on a terminal, lines in a pipe, JSON for programs.

use std::time::Duration;

use serde_json::{Value, json};

use super::file::DemoFile;
use super::picture::{Picture, counts, stamp};
use super::sentence;
use crate::cli::failure::{Result, shell_quoted};
use crate::cli::out::{Out, Tone};
use crate::cli::text::{clean, counted, wrapped};
use crate::demo::{Event, Scene, Shown, Summary};

/// Minimum time between two lines with the current state, in a pipe.
const EVERY: Duration = Duration::from_secs(10);

/// The output of the demo.
pub struct Voice {
    out: Out,
    url: String,
    how: How,
}

enum How {
    Json { events: Vec<Value> },
    Live(Box<Picture>),
    Lines { last_at: Option<Duration> },
}

impl Voice {
    /// Makes the output in the format of `out`. It is live if the user can type.
    pub fn new(out: Out, url: &str, abide: &str, live: bool) -> Self {
        let how = match (out.json, live) {
            (true, _) => How::Json { events: Vec::new() },
            (false, true) => How::Live(Box::new(Picture::new(out, abide))),
            (false, false) => How::Lines { last_at: None },
        };
        Self {
            out,
            url: url.to_owned(),
            how,
        }
    }

    /// `true` if it is redrawn in place.
    pub const fn is_live(&self) -> bool {
        matches!(self.how, How::Live(_))
    }

    /// Prints the address of the demo, and commands to try.
    pub fn first(
        &mut self,
        scene: &Scene,
        demo_file: &DemoFile,
        commands: &[(String, String)],
    ) -> Result<()> {
        let (out, url) = (self.out, &self.url);
        let workers = scene.workers();
        if let How::Json { .. } = self.how {
            let commands: Vec<&String> = commands.iter().map(|(command, _)| command).collect();
            return out.entry(&json!({
                "kind": "ready", "url": url, "file": demo_file.file().display().to_string(),
                "kept": demo_file.is_kept(), "workers": workers, "commands": commands,
            }));
        }
        let what = match demo_file.is_kept() {
            true => clean(&demo_file.file().display().to_string()).into_owned(),
            false => "a SQLite file".to_owned(),
        };
        let pids = workers.iter().filter_map(|worker| worker.pid);
        let pids: Vec<String> = pids.map(|pid| pid.to_string()).collect();
        let head = format!("abide demo on {url}");
        out.raw(&format!("{}\n", out.paint(Tone::Strong, &head)))?;
        let text = format!(
            "A server over {what}, and {} ({}). Every seventh order waits for you to pay it. Kill a worker: nothing is lost.",
            counted(workers.len() as u64, "worker process", "worker processes"),
            pids.join(", ")
        );
        for line in wrapped(&text, out.width.unwrap_or(80).min(100).saturating_sub(1)) {
            out.line(&line)?;
        }
        out.line("")?;
        out.line("In another terminal:")?;
        let widest = |(command, what): &(String, String)| (command.len(), what.len());
        let (command, what): (Vec<_>, Vec<_>) = commands.iter().map(widest).unzip();
        let most = |lengths: Vec<usize>| lengths.into_iter().max().unwrap_or_default();
        let (command_most, what_most) = (most(command), most(what));
        let fits = out
            .width
            .is_none_or(|width| command_most + what_most + 6 < width);
        for (command, what) in commands {
            match fits {
                true => {
                    let what = out.paint(Tone::Quiet, &format!("# {what}"));
                    out.raw(&format!("  {command:<command_most$}  {what}\n"))?;
                }
                // A command on two lines could not be copied.
                false => out.raw(&format!("  {command}\n"))?,
            }
        }
        if !self.is_live() {
            out.line("")?;
        }
        Ok(())
    }

    /// Records an event.
    pub fn note(&mut self, at: Duration, event: &Event) -> Result<()> {
        match &mut self.how {
            How::Json { events } => {
                let kind = match event {
                    Event::Died(_) => "worker_died",
                    Event::WentOn(_) => "went_on",
                    Event::Back(_) => "worker_started",
                    Event::Ended(_) => "ended",
                };
                events.push(json!({"kind": kind, "text": event.text()}));
                Ok(())
            }
            How::Live(picture) => {
                picture.note(at, event);
                Ok(())
            }
            How::Lines { .. } if matches!(event, Event::Ended(_)) => Ok(()),
            How::Lines { .. } => {
                let line = format!("{}  {}", stamp(at), clean(event.text()));
                self.out.line(&line)
            }
        }
    }

    /// Records that the user typed a line, and a hint about it.
    pub fn entered(&mut self, hint: Option<String>) {
        if let How::Live(picture) = &mut self.how {
            picture.entered(hint);
        }
    }

    /// Shows the current state.
    pub fn tick(&mut self, at: Duration, shown: &Shown) -> Result<()> {
        match &mut self.how {
            How::Json { events } => {
                let mut tick = serde_json::to_value(shown).unwrap_or_default();
                if let Value::Object(fields) = &mut tick {
                    fields.insert("kind".to_owned(), "tick".into());
                    fields.insert("at_ms".to_owned(), (at.as_millis() as u64).into());
                    fields.insert("events".to_owned(), std::mem::take(events).into());
                }
                self.out.entry(&tick)
            }
            How::Live(picture) => picture.draw(at, shown),
            How::Lines { last_at } => {
                if last_at.is_some_and(|last_at| at < last_at + EVERY) {
                    return Ok(());
                }
                *last_at = Some(at);
                self.out.line(&counts(at, shown))
            }
        }
    }
}

/// The summary, in one sentence.
pub fn last(out: &Out, summary: &Summary, demo_file: &DemoFile) -> Result<()> {
    let sentence = sentence(summary);
    if out.json {
        let mut end = serde_json::to_value(summary).unwrap_or_default();
        if let Value::Object(fields) = &mut end {
            fields.insert("kind".to_owned(), "end".into());
            fields.insert("text".to_owned(), sentence.into());
        }
        return out.entry(&end);
    }
    for line in wrapped(&sentence, out.width.unwrap_or(usize::MAX).saturating_sub(1)) {
        out.line(&line)?;
    }
    for problem in &summary.wrong {
        out.line(&format!("  {}", clean(problem)))?;
    }
    if demo_file.is_kept() {
        let file = shell_quoted(&demo_file.file().display().to_string());
        out.say(&format!("to go on: abide demo --keep {file}"));
    }
    Ok(())
}
