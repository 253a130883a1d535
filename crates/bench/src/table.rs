//! Results of the measurements, as a table for people and as JSON for programs.

use std::fmt::Write as _;

use serde::Serialize;

use crate::Result;
use crate::site::Store;
use crate::workloads::Workload;

/// Result of a workload.
#[derive(Debug)]
pub enum Measured {
    /// Figures.
    Figures {
        /// Figure of abide.
        ours: f64,
        /// Figure of the database by itself, or what is allowed.
        limit: f64,
        /// Unit of both.
        unit: &'static str,
        /// Duration of a sync of the disk meanwhile, where that matters.
        sync_ms: Option<f64>,
        /// Required ratio of the two.
        floor: Floor,
    },
    /// It cannot be measured here, and why.
    Skipped(String),
}

/// Required ratio.
#[derive(Clone, Copy, Debug)]
pub enum Floor {
    /// So much of the limit, or more.
    AtLeast(f64),
    /// So much of what is allowed, or less.
    AtMost(f64),
}

/// All that was measured.
#[derive(Serialize)]
pub struct Report {
    settings: Vec<Setting>,
    rows: Vec<Row>,
    skipped: Vec<Skipped>,
}

#[derive(Serialize)]
struct Setting {
    of: &'static str,
    says: String,
}

#[derive(Serialize)]
struct Row {
    workload: &'static str,
    store: &'static str,
    #[serde(skip)]
    about: &'static str,
    ours: f64,
    limit: f64,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_ms: Option<f64>,
    ratio: f64,
    floor: f64,
    /// `true` if the floor is one from above: then the ratio may not be greater.
    at_most: bool,
    met: bool,
}

#[derive(Serialize)]
struct Skipped {
    workload: &'static str,
    store: &'static str,
    why: String,
}

impl Report {
    pub fn new() -> Self {
        Self {
            settings: Vec::new(),
            rows: Vec::new(),
            skipped: Vec::new(),
        }
    }

    /// Notes under what circumstances was measured.
    pub fn setting(&mut self, of: &'static str, says: String) {
        self.settings.push(Setting { of, says });
    }

    pub fn add(&mut self, workload: Workload, store: Store, measured: Measured) {
        let (name, about, store) = (workload.name(), workload.about(), store.name());
        match measured {
            Measured::Skipped(why) => self.skipped.push(Skipped {
                workload: name,
                store,
                why,
            }),
            Measured::Figures {
                ours,
                limit,
                unit,
                sync_ms,
                floor,
            } => {
                let ratio = ours / limit;
                let (floor, at_most, met) = match floor {
                    Floor::AtLeast(floor) => (floor, false, ratio >= floor),
                    Floor::AtMost(floor) => (floor, true, ratio <= floor),
                };
                self.rows.push(Row {
                    workload: name,
                    store,
                    about,
                    ours: rounded(ours),
                    limit: rounded(limit),
                    unit,
                    sync_ms: sync_ms.map(rounded),
                    ratio: rounded(ratio),
                    floor,
                    at_most,
                    met,
                });
            }
        }
    }

    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    pub fn table(&self) -> String {
        let head = [
            "workload", "store", "abide", "limit", "unit", "ratio", "floor", "", "sync", "what",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(Row::cells));
        let mut widths = [0; 10];
        for line in &lines {
            for (width, cell) in widths.iter_mut().zip(line) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for line in &lines {
            let mut out = String::new();
            for ((cell, width), right) in line.iter().zip(widths).zip(NUMBERS) {
                // Writing to a string does not fail.
                let _ = if right {
                    write!(out, "{cell:>width$}  ")
                } else {
                    write!(out, "{cell:<width$}  ")
                };
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
        for Skipped {
            workload,
            store,
            why,
        } in &self.skipped
        {
            let _ = writeln!(text, "{workload} on {store} was not measured: {why}");
        }
        text.push('\n');
        for Setting { of, says } in &self.settings {
            let _ = writeln!(text, "{of}: {says}");
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Which columns are numbers, and end where they end.
const NUMBERS: [bool; 10] = [
    false, false, true, true, false, true, true, false, true, false,
];

impl Row {
    fn cells(&self) -> [String; 10] {
        let sign = if self.at_most { "≤" } else { "≥" };
        [
            self.workload.to_owned(),
            self.store.to_owned(),
            grouped(self.ours),
            grouped(self.limit),
            self.unit.to_owned(),
            format!("{:.2}", self.ratio),
            format!("{sign} {:.2}", self.floor),
            if self.met { "met" } else { "MISSED" }.to_owned(),
            self.sync_ms
                .map_or(String::new(), |ms| format!("{ms:.2} ms")),
            self.about.to_owned(),
        ]
    }
}

/// To three digits behind the point: more would pretend.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// 12,345 for what is large, 1.23 for what is small.
fn grouped(number: f64) -> String {
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

    fn report() -> Report {
        let mut report = Report::new();
        let figures = |ours, limit, unit, floor| Measured::Figures {
            ours,
            limit,
            unit,
            sync_ms: None,
            floor,
        };
        let rows = figures(31_000.4, 50_000.0, "rows/s", Floor::AtLeast(0.6));
        report.add(Workload::W1, Store::Postgres, rows);
        let memory = figures(66.0, 60.0, "MB", Floor::AtMost(1.0));
        report.add(Workload::Memory, Store::Sqlite, memory);
        let skipped = Measured::Skipped("nothing counts them".to_owned());
        report.add(Workload::Idle, Store::Sqlite, skipped);
        report.setting("engine", "as it is".to_owned());
        report
    }

    #[test]
    fn a_table_tells_which_floors_are_met() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[1].starts_with("W1        postgres  31,000  50,000  rows/s   0.62  ≥ 0.60  met")
        );
        assert!(
            lines[2]
                .starts_with("MEM       sqlite        66      60  MB       1.10  ≤ 1.00  MISSED")
        );
        assert_eq!(
            lines[3],
            "IDLE on sqlite was not measured: nothing counts them"
        );
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
            (Some(31_000.4), Some(50_000.0))
        );
        assert_eq!(
            (row["ratio"].as_f64(), row["met"].as_bool()),
            (Some(0.62), Some(true))
        );
        assert_eq!(json["rows"][1]["met"].as_bool(), Some(false));
        assert_eq!(json["skipped"][0]["workload"].as_str(), Some("IDLE"));
    }

    #[test]
    fn large_numbers_are_grouped_and_small_ones_have_digits() {
        let texts = [0.4, 60.0, 100.0, 12_345.6, 1_000_000.0].map(grouped);
        assert_eq!(texts, ["0.40", "60", "100", "12,346", "1,000,000"]);
    }
}
