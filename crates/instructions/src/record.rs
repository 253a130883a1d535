//! The counts on record: a file with a section for each kind of machine, and the comparison with new counts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::callgrind::Cost;

/// By how many percent a count may grow.
pub const MORE_PERCENT: u64 = 10;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.txt");

const HEAD: &str = "\
# What the kernel's hot operations cost on the memory store, unoptimised: the instructions of our own code, and the
# allocations, of one transaction with so many entries. `make test` fails if one has grown by more than a tenth.
#
# Instructions depend on the compiler and on the kind of machine, so each section names its own. With another compiler,
# only allocations are compared. Record new counts with `make instructions-renew`, and say in the commit why they changed.
";

/// A compiler, and the kind of machine that it compiles for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The kind of machine, such as `x86_64-unknown-linux-gnu`.
    pub host: String,
    /// The compiler, such as `rustc 1.95.0`.
    pub compiler: String,
}

/// Returns the compiler that builds this program. Cargo runs the program with the compiler's name in the environment if
/// it is another one than usual.
pub fn target() -> Result<Target, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let run = Command::new(&rustc).arg("-vV").output();
    let run = run.map_err(|error| format!("`{rustc}` cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&run.stdout);
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    match (value("host: "), value("release: ")) {
        (Some(host), Some(release)) => Ok(Target {
            host: host.to_owned(),
            compiler: format!("rustc {release}"),
        }),
        _ => Err(format!("`{rustc} -vV` does not name host and release")),
    }
}

/// What one operation costs in a transaction of so many entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub operation: String,
    pub entries: usize,
    pub cost: Cost,
}

impl Row {
    fn name(&self) -> String {
        format!("{} of {}", self.operation, self.entries)
    }
}

/// The counts on record, by host: the compiler, and the rows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<String, (String, Vec<Row>)>);

/// The result of a comparison.
pub struct Compared {
    /// A table, and what there is to say about it.
    pub text: String,
    /// The counts that have grown too much, and those that are on record for nothing.
    pub grown: Vec<String>,
}

impl Record {
    /// Reads the file.
    pub fn read() -> Result<Self, String> {
        if !Path::new(FILE).exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&text).map_err(|line| format!("{FILE}: invalid line {line:?}; renew the file"))
    }

    /// Writes the file.
    pub fn write(&self) -> Result<(), String> {
        std::fs::write(FILE, self.text()).map_err(|error| format!("{FILE}: {error}"))
    }

    /// Replaces the counts of this kind of machine.
    pub fn replace(&mut self, target: Target, rows: Vec<Row>) {
        self.0.insert(target.host, (target.compiler, rows));
    }

    /// Compares new counts with those on record.
    pub fn compare(&self, target: &Target, rows: &[Row]) -> Compared {
        let own = self.0.get(&target.host);
        let is_same = own.is_some_and(|(compiler, _)| *compiler == target.compiler);
        let on_record = own.or_else(|| self.0.values().next());
        let (mut text, mut grown) = (String::new(), Vec::new());
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<12}{:>8}{:>14}{:>10}{:>13}{:>10}",
            "operation", "entries", "instructions", "recorded", "allocations", "recorded"
        );
        let mut known: Vec<&Row> = on_record.iter().flat_map(|(_, rows)| rows).collect();
        for row in rows {
            let was = known.iter().position(|was| was.name() == row.name());
            let was = was.map(|at| known.remove(at).cost);
            let cell = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
            let instructions = was.filter(|_| is_same).map(|was| was.instructions);
            let allocations = was.map(|was| was.allocations);
            let _ = writeln!(
                text,
                "{:<12}{:>8}{:>14}{:>10}{:>13}{:>10}",
                row.operation,
                row.entries,
                row.cost.instructions,
                cell(instructions),
                row.cost.allocations,
                cell(allocations)
            );
            if was.is_none() {
                grown.push(format!("{} (not on record)", row.name()));
            }
            let more = |now: u64, was: Option<u64>| {
                was.is_some_and(|was| now * 100 > was * (100 + MORE_PERCENT))
            };
            if more(row.cost.instructions, instructions) {
                grown.push(format!("instructions of {}", row.name()));
            }
            if more(row.cost.allocations, allocations) {
                grown.push(format!("allocations of {}", row.name()));
            }
        }
        grown.extend(
            known
                .iter()
                .map(|was| format!("{} (no longer counted)", was.name())),
        );
        if !is_same {
            let _ = writeln!(
                text,
                "counted with {} on {}, which is not on record: only allocations are compared; \
                 `make instructions-renew` records it",
                target.compiler, target.host
            );
        }
        Compared { text, grown }
    }

    fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (host, (compiler, rows)) in &self.0 {
            // Writing to a string does not fail.
            let _ = writeln!(text, "\n[{host}, {compiler}]");
            let _ = writeln!(text, "operation entries instructions allocations");
            for row in rows {
                let Cost {
                    instructions,
                    allocations,
                } = row.cost;
                let (operation, entries) = (&row.operation, row.entries);
                let _ = writeln!(text, "{operation} {entries} {instructions} {allocations}");
            }
        }
        text
    }

    /// Reads a text; the error is the line that is not understood.
    fn parse(text: &str) -> Result<Self, &str> {
        let mut record = Self::default();
        let mut section: Option<&mut (String, Vec<Row>)> = None;
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') || line.starts_with("operation ") {
                continue;
            }
            if let Some(target) = line.strip_prefix('[') {
                let target = target
                    .strip_suffix(']')
                    .and_then(|one| one.split_once(", "));
                let (host, compiler) = target.ok_or(line)?;
                let rows = || (compiler.to_owned(), Vec::new());
                section = Some(record.0.entry(host.to_owned()).or_insert_with(rows));
                continue;
            }
            let (_, rows) = section.as_deref_mut().ok_or(line)?;
            rows.push(row(line).ok_or(line)?);
        }
        Ok(record)
    }
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split(' ');
    let row = Row {
        operation: words.next()?.to_owned(),
        entries: words.next()?.parse().ok()?,
        cost: Cost {
            instructions: words.next()?.parse().ok()?,
            allocations: words.next()?.parse().ok()?,
        },
    };
    words.next().is_none().then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(compiler: &str) -> Target {
        Target {
            host: "x86_64-unknown-linux-gnu".to_owned(),
            compiler: compiler.to_owned(),
        }
    }

    fn start(instructions: u64, allocations: u64) -> Row {
        Row {
            operation: "start".to_owned(),
            entries: 64,
            cost: Cost {
                instructions,
                allocations,
            },
        }
    }

    fn record() -> Record {
        let mut record = Record::default();
        record.replace(target("rustc 1.95.0"), vec![start(1_000, 20)]);
        record
    }

    fn grown(compiler: &str, rows: &[Row]) -> Vec<String> {
        record().compare(&target(compiler), rows).grown
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut record = record();
        let other = Target {
            host: "aarch64-unknown-linux-gnu".to_owned(),
            compiler: "rustc 1.96.0".to_owned(),
        };
        record.replace(other, vec![start(900, 20), start(5, 1)]);
        assert_eq!(Record::parse(&record.text()), Ok(record));
    }

    #[test]
    fn a_line_that_is_not_understood_is_named() {
        for line in ["start 64 1000", "start 64 1000 20 7", "start 64 many 20"] {
            let text = format!("[host, rustc 1]\n{line}\n");
            assert_eq!(Record::parse(&text), Err(line));
        }
        assert_eq!(Record::parse("start 64 1000 20"), Err("start 64 1000 20"));
    }

    #[test]
    fn more_than_a_tenth_is_too_much() {
        assert!(grown("rustc 1.95.0", &[start(1_100, 22)]).is_empty());
        assert_eq!(
            grown("rustc 1.95.0", &[start(1_101, 22)]),
            ["instructions of start of 64"]
        );
        assert_eq!(
            grown("rustc 1.95.0", &[start(1_000, 23)]),
            ["allocations of start of 64"]
        );
    }

    #[test]
    fn with_another_compiler_only_allocations_are_compared() {
        assert!(grown("rustc 1.96.0", &[start(5_000, 20)]).is_empty());
        assert_eq!(
            grown("rustc 1.96.0", &[start(5_000, 23)]),
            ["allocations of start of 64"]
        );
        let text = record().compare(&target("rustc 1.96.0"), &[]).text;
        assert!(text.contains("only allocations are compared"), "{text}");
    }

    #[test]
    fn the_record_names_what_is_counted_and_nothing_else() {
        let mut other = start(1_000, 20);
        other.entries = 1;
        assert_eq!(
            grown("rustc 1.95.0", &[other]),
            [
                "start of 1 (not on record)",
                "start of 64 (no longer counted)"
            ]
        );
    }
}
