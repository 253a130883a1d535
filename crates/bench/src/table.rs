//! A report as tables: aligned for a terminal, or in Markdown for `docs/performance.md`.

use crate::plots::Plot;
use crate::report::{Detail, Report, Row};

/// Columns of the table of figures, and those of the table of costs.
const FIGURES: [(&str, Align); 9] = [
    ("workload", Align::Left),
    ("store", Align::Left),
    ("abide", Align::Right),
    ("limit", Align::Right),
    ("unit", Align::Left),
    ("ratio", Align::Right),
    ("floor", Align::Right),
    ("", Align::Left),
    ("sync", Align::Right),
];
const COSTS: [(&str, Align); 7] = [
    ("workload", Align::Left),
    ("store", Align::Left),
    ("engine CPU", Align::Right),
    ("database CPU", Align::Right),
    ("statements", Align::Right),
    ("log bytes", Align::Right),
    ("HOT", Align::Right),
];
const COSTS_TITLE: &str = "CPU seconds of 10,000 steps; statements, bytes of the write-ahead log and HOT updates of one. \
    SQLite runs inside the engine, which counts for both.";

#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
}

type Cells = Vec<String>;

impl Report {
    /// For a terminal.
    pub fn table(&self) -> String {
        let about = [("what", Align::Left)];
        let mut figures = self.figures();
        for (cells, row) in figures.iter_mut().zip(&self.rows) {
            cells.push(row.about.to_owned());
        }
        let mut text = aligned(&[&FIGURES[..], &about].concat(), &figures);
        for skipped in self.skipped() {
            text.push_str(&format!("{skipped}\n"));
        }
        if self.has_costs() {
            text.push_str(&format!(
                "\n{COSTS_TITLE}\n{}",
                aligned(&COSTS, &self.costs())
            ));
        }
        text.push('\n');
        for (name, details) in self.details() {
            text.push_str(&format!("{name}: {details}\n"));
        }
        text.push('\n');
        for setting in &self.settings {
            text.push_str(&format!("{}: {}\n", setting.of, setting.says));
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The section of `docs/performance.md` that has the figures, with the plots, which lie in the directory
    /// `performance` beside it.
    pub fn markdown(&self, plots: &[Plot]) -> String {
        let mut text = String::new();
        for setting in &self.settings {
            text.push_str(&format!("- **{}**: {}\n", setting.of, setting.says));
        }
        text.push_str(&format!("\n{}", piped(&FIGURES, &self.figures())));
        if self.has_costs() {
            text.push_str("\n### Cost of a step\n\n");
            text.push_str(&format!(
                "{COSTS_TITLE}\n\n{}",
                piped(&COSTS, &self.costs())
            ));
        }
        text.push_str("\n### Details\n\n");
        for (name, details) in self.details() {
            text.push_str(&format!("- **{name}**: {details}\n"));
        }
        for skipped in self.skipped() {
            text.push_str(&format!("- {skipped}\n"));
        }
        for (title, name) in plots {
            text.push_str(&format!("\n![{title}](performance/{name})\n"));
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn figures(&self) -> Vec<Cells> {
        let cells = |row: &Row| {
            let sign = if row.at_most { "≤" } else { "≥" };
            vec![
                row.name(),
                row.store.to_owned(),
                grouped(row.ours),
                grouped(row.limit),
                row.unit.to_owned(),
                format!("{:.2}", row.ratio),
                format!("{sign} {:.2}", row.floor),
                if row.met { "met" } else { "MISSED" }.to_owned(),
                row.sync_ms
                    .map_or(String::new(), |ms| format!("{ms:.2} ms")),
            ]
        };
        self.rows.iter().map(cells).collect()
    }

    fn has_costs(&self) -> bool {
        self.rows.iter().any(|row| row.cost.is_some())
    }

    fn costs(&self) -> Vec<Cells> {
        let shown = |value: Option<f64>, digits: usize, unit: &str| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}{unit}"))
        };
        let cells = |row: &Row| {
            let cost = row.cost?;
            Some(vec![
                row.name(),
                row.store.to_owned(),
                shown(cost.engine_cpu_s, 3, " s"),
                shown(cost.database_cpu_s, 3, " s"),
                shown(cost.statements, 3, ""),
                cost.log_bytes.map_or("-".to_owned(), grouped),
                shown(cost.hot_ratio, 2, ""),
            ])
        };
        self.rows.iter().filter_map(cells).collect()
    }

    /// What has details, and those.
    fn details(&self) -> impl Iterator<Item = (String, String)> {
        let shown = |detail: &Detail| {
            let (name, value) = (&detail.name, grouped(detail.value));
            format!("{name} {value} {}", detail.unit)
                .trim_end()
                .to_owned()
        };
        let rows = self.rows.iter().filter(|row| !row.details.is_empty());
        rows.map(move |row| {
            let details: Vec<String> = row.details.iter().map(shown).collect();
            (
                format!("{} on {}", row.name(), row.store),
                details.join(", "),
            )
        })
    }

    fn skipped(&self) -> impl Iterator<Item = String> {
        let skipped = self.skipped.iter();
        skipped.map(|it| {
            format!(
                "{} on {} was not measured: {}",
                it.workload, it.store, it.why
            )
        })
    }
}

/// Lines whose cells lie below each other.
fn aligned(columns: &[(&str, Align)], rows: &[Cells]) -> String {
    let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
    let lines: Vec<Cells> = std::iter::once(head).chain(rows.iter().cloned()).collect();
    let mut widths = vec![0; columns.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in &lines {
        let mut out = String::new();
        for ((cell, &width), (_, align)) in line.iter().zip(&widths).zip(columns) {
            out.push_str(&match align {
                Align::Left => format!("{cell:<width$}  "),
                Align::Right => format!("{cell:>width$}  "),
            });
        }
        text.push_str(out.trim_end());
        text.push('\n');
    }
    text
}

/// A table of Markdown.
fn piped(columns: &[(&str, Align)], rows: &[Cells]) -> String {
    let head: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let rule = columns.iter().map(|(_, align)| match align {
        Align::Left => "---",
        Align::Right => "---:",
    });
    let rule: Vec<&str> = rule.collect();
    let mut text = format!("| {} |\n|{}|\n", head.join(" | "), rule.join("|"));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// 12,345 for what is large, 1.23 for what is small.
pub fn grouped(number: f64) -> String {
    if number < 100.0 {
        let text = format!("{number:.2}");
        return text.strip_suffix(".00").map_or(text.clone(), str::to_owned);
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::report::{Figure, Measured};
    use crate::site::Store;
    use crate::workloads::Workload;

    fn report() -> Report {
        let mut report = Report::default();
        let rows = Figure {
            cost: Some(Cost {
                engine_cpu_s: Some(0.25),
                log_bytes: Some(1_780.0),
                ..Cost::default()
            }),
            ..Figure::new(41_000.4, 50_000.0, "rows/s")
        };
        report.add(Workload::W1, Store::Postgres, rows.into());
        let memory = Figure::new(66.0, 60.0, "MB").detail("threads", 5.0, "");
        report.add(Workload::Memory, Store::Sqlite, memory.into());
        let skipped = Measured::Skipped("nothing counts them".to_owned());
        report.add(Workload::Idle, Store::Sqlite, skipped);
        report.setting("engine", "as it is".to_owned());
        report
    }

    #[test]
    fn a_table_tells_which_floors_are_met_and_what_a_step_costs() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[1].starts_with("W1        postgres  41,000  50,000  rows/s   0.82  ≥ 0.75  met")
        );
        assert!(
            lines[2]
                .starts_with("MEM       sqlite        66      60  MB       1.10  ≤ 1.00  MISSED")
        );
        assert_eq!(
            lines[3],
            "IDLE on sqlite was not measured: nothing counts them"
        );
        assert_eq!(
            lines[7],
            "W1        postgres     0.250 s             -           -      1,780    -"
        );
        assert_eq!(lines[9], "MEM on sqlite: threads 5");
        assert_eq!(lines[11], "engine: as it is");
    }

    #[test]
    fn markdown_has_the_same_figures_and_the_plots() {
        let text = report().markdown(&[("Rates".to_owned(), "rates.svg".to_owned())]);
        for line in [
            "- **engine**: as it is",
            "|---|---|---:|---:|---|---:|---:|---|---:|",
            "| W1 | postgres | 41,000 | 50,000 | rows/s | 0.82 | ≥ 0.75 | met |  |",
            "| W1 | postgres | 0.250 s | - | - | 1,780 | - |",
            "- **MEM on sqlite**: threads 5",
            "- IDLE on sqlite was not measured: nothing counts them",
            "![Rates](performance/rates.svg)",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn json_has_the_same_figures() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        let row = &json["rows"][0];
        assert_eq!(
            (row["workload"].as_str(), row["store"].as_str()),
            (Some("W1"), Some("postgres"))
        );
        assert_eq!(
            (row["ours"].as_f64(), row["limit"].as_f64()),
            (Some(41_000.4), Some(50_000.0))
        );
        assert_eq!(
            (row["ratio"].as_f64(), row["met"].as_bool()),
            (Some(0.82), Some(true))
        );
        assert_eq!(row["cost"]["engine_cpu_s"].as_f64(), Some(0.25));
        assert!(row["cost"]["database_cpu_s"].is_null());
        assert_eq!(json["rows"][1]["met"].as_bool(), Some(false));
        assert_eq!(json["skipped"][0]["workload"].as_str(), Some("IDLE"));
    }

    #[test]
    fn large_numbers_are_grouped_and_small_ones_have_digits() {
        let texts = [0.4, 60.0, 100.0, 12_345.6, 1_000_000.0].map(grouped);
        assert_eq!(texts, ["0.40", "60", "100", "12,346", "1,000,000"]);
    }
}
