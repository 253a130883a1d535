//! The log. Lines about answered requests are written by a thread of its own, many at once, so that no request waits for
//! whoever reads the log. All other lines are written at once.

use std::fmt::{self, Debug};
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::{self, Format, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// The target of lines about answered requests.
pub(crate) const ACCESS: &str = "abide::access";

/// Time for which these lines wait for more of them. A process that is killed loses the lines of that time.
const GATHERING: Duration = Duration::from_millis(20);

/// Bytes of lines that may wait. A line beyond them is written at once, with all that wait, as slowly as the log is read.
const WAITING_BYTES: usize = 1 << 20;

/// Writes lines to `W`, in the order in which they arrive.
pub(crate) struct Log<W> {
    shared: Arc<Shared<W>>,
    /// `false` if the thread could not be started. Then all lines are written at once.
    gathers: bool,
}

struct Shared<W> {
    /// Held from taking the waiting lines until they are written, which keeps them in order.
    out: Mutex<W>,
    waiting: Mutex<Vec<u8>>,
    arrived: Condvar,
}

impl<W: Write + Send + 'static> Log<W> {
    /// Begins the thread, which lives as long as the process.
    pub fn to(out: W) -> Self {
        let shared = Arc::new(Shared {
            out: Mutex::new(out),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
        });
        let lines = shared.clone();
        let thread = std::thread::Builder::new().name("abide-log".to_owned());
        let begun = thread.spawn(move || {
            loop {
                lines.wait();
                std::thread::sleep(GATHERING);
                // A line that cannot be written has no other place to go.
                let _ = lines.write(&[]);
            }
        });
        let gathers = begun.is_ok();
        Self { shared, gathers }
    }
}

impl<W: Write> Shared<W> {
    /// Waits until there are lines.
    fn wait(&self) {
        let waiting = locked(&self.waiting);
        let arrived = self.arrived.wait_while(waiting, |lines| lines.is_empty());
        drop(arrived.unwrap_or_else(PoisonError::into_inner));
    }

    /// Leaves a line to the thread; `false` if too many wait.
    fn leave(&self, line: &[u8]) -> bool {
        let mut waiting = locked(&self.waiting);
        let fits = waiting.len() + line.len() <= WAITING_BYTES;
        if fits {
            if waiting.is_empty() {
                self.arrived.notify_one();
            }
            waiting.extend_from_slice(line);
        }
        fits
    }

    /// Writes the lines that wait, and then this one.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut out = locked(&self.out);
        let mut lines = std::mem::take(&mut *locked(&self.waiting));
        lines.extend_from_slice(line);
        out.write_all(&lines)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, W: Write + 'a> MakeWriter<'a> for Log<W> {
    type Writer = Line<'a, W>;

    fn make_writer(&'a self) -> Line<'a, W> {
        Line {
            shared: &self.shared,
            may_wait: false,
        }
    }

    fn make_writer_for(&'a self, about: &Metadata<'_>) -> Line<'a, W> {
        let may_wait = self.gathers && about.target() == ACCESS && *about.level() >= Level::INFO;
        Line {
            may_wait,
            ..self.make_writer()
        }
    }
}

/// Writes one line.
pub(crate) struct Line<'a, W> {
    shared: &'a Shared<W>,
    may_wait: bool,
}

impl<W: Write> Write for Line<'_, W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !(self.may_wait && self.shared.leave(line)) {
            self.shared.write(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The format of lines as JSON. Every request has one about it, so these are written here, as the general format writes
/// them, with half of the instructions.
pub(crate) struct Json(pub Format<format::Json>);

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let about = event.metadata();
        if about.target() != ACCESS || context.lookup_current().is_some() {
            return self.0.format_event(context, line, event);
        }
        line.write_str(r#"{"timestamp":""#)?;
        SystemTime.format_time(&mut line)?;
        write!(line, r#"","level":"{}""#, about.level())?;
        let mut fields = Fields {
            line: &mut line,
            written: Ok(()),
        };
        event.record(&mut fields);
        fields.text("target", ACCESS);
        fields.written?;
        line.write_str("}\n")
    }
}

/// Writes the fields of an event.
struct Fields<'f, 'w> {
    line: &'f mut Writer<'w>,
    written: fmt::Result,
}

impl Fields<'_, '_> {
    fn write(&mut self, name: &str, quote: &str, value: &str) {
        let parts = [",\"", name, "\":", quote, value, quote];
        let mut parts = parts.into_iter();
        let written = parts.try_for_each(|part| self.line.write_str(part));
        self.written = self.written.and(written);
    }

    fn text(&mut self, name: &str, text: &str) {
        let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
        match text.as_bytes().iter().all(is_plain) {
            true => self.write(name, "\"", text),
            false => self.json(name, text),
        }
    }

    fn json<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        match serde_json::to_string(value) {
            Ok(value) => self.write(name, "", &value),
            Err(_) => self.written = Err(fmt::Error),
        }
    }
}

impl Visit for Fields<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.json(field.name(), &value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.json(field.name(), &value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tracing_subscriber::prelude::*;

    use super::*;

    /// Sends what is written.
    struct Sent(mpsc::Sender<String>);

    impl Write for Sent {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            self.0.send(text).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logging(run: impl FnOnce()) -> mpsc::Receiver<String> {
        let (sender, written) = mpsc::channel();
        let layer = tracing_subscriber::fmt::layer()
            .without_time()
            .with_level(false)
            .with_target(false)
            .with_ansi(false)
            .with_writer(Log::to(Sent(sender)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), run);
        written
    }

    /// The lines in a format as JSON, without their times.
    fn in_json<F>(format: F) -> Vec<String>
    where
        F: FormatEvent<tracing_subscriber::Registry, format::JsonFields> + Send + Sync + 'static,
    {
        let (sender, written) = mpsc::channel();
        let layer = tracing_subscriber::fmt::layer()
            .json()
            .event_format(format)
            .with_writer(Log::to(Sent(sender)));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for route in ["/v1/instances", "a\"b\\\n\u{1}é"] {
                let (method, status, ms, request_id) = ("GET", 202_u16, 0.125_f64, "0f-1");
                tracing::info!(target: ACCESS, method, route, status, ms, request_id, "request");
                tracing::warn!(target: ACCESS, method, status, ms = f64::NAN, "request");
                tracing::warn!(route, count = -3, is = true, "another line");
            }
            let _in_span = tracing::info_span!("outer", n = 1).entered();
            tracing::warn!(target: ACCESS, status = 500_u16, "request");
        });
        let lines: String = written.try_iter().collect();
        let lines = lines.lines().map(|line| {
            let (time, rest) = line.split_once(",").unwrap();
            assert!(
                time.starts_with("{\"timestamp\":\"20") && time.ends_with("Z\""),
                "{line}"
            );
            rest.to_owned()
        });
        lines.collect()
    }

    #[test]
    fn a_line_about_a_request_is_written_as_the_general_format_writes_it() {
        let general = Format::default().json().flatten_event(true);
        let expected = in_json(general.clone());
        assert_eq!(expected.len(), 7);
        assert_eq!(in_json(Json(general)), expected);
    }

    #[test]
    fn requests_are_logged_together_and_without_anything_else_to_cause_it() {
        let written = logging(|| {
            for n in 0..3 {
                tracing::info!(target: ACCESS, "request {n}");
            }
        });
        let mut lines = String::new();
        while lines.lines().count() < 3 {
            lines += &written.recv().unwrap();
        }
        assert_eq!(lines, "request 0\nrequest 1\nrequest 2\n");
    }

    #[test]
    fn any_other_line_is_written_at_once_and_after_the_requests_before_it() {
        let written = logging(|| {
            tracing::info!(target: ACCESS, "request");
            tracing::warn!("warning");
            tracing::warn!(target: ACCESS, "failed request");
        });
        // Without another wait: all of it is there.
        let lines: String = written.try_iter().collect();
        assert_eq!(lines, "request\nwarning\nfailed request\n");
    }

    #[test]
    fn a_line_for_which_there_is_no_room_is_written_at_once_with_those_that_wait() {
        let long = "x".repeat(WAITING_BYTES);
        let written = logging(|| {
            tracing::info!(target: ACCESS, "short");
            tracing::info!(target: ACCESS, "{long}");
        });
        let lines: String = written.try_iter().collect();
        assert_eq!(lines, format!("short\n{long}\n"));
    }
}
