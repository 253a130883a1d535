//! Results of the measurements: what was reached, beside its limit and its floor.

use serde::Serialize;

use crate::Result;
use crate::cost::{Cost, Meter};
use crate::site::Store;
use crate::workloads::Workload;

/// Result of a workload.
#[derive(Debug)]
pub enum Measured {
    Figures(Vec<Figure>),
    /// It cannot be measured here, and why.
    Skipped(String),
}

/// What abide reached, beside its limit.
#[derive(Debug, Default)]
pub struct Figure {
    /// Which figure of the workload it is, where that has several.
    pub part: &'static str,
    /// Figure of abide.
    pub ours: f64,
    /// Figure of the database by itself, or what is allowed.
    pub limit: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// Required ratio of the two, if it is not that of the workload.
    pub floor: Option<Floor>,
    /// Duration of a sync of the disk meanwhile, where that matters.
    pub sync_ms: Option<f64>,
    /// Cost of a step.
    pub cost: Option<Cost>,
    /// What was measured on the way.
    pub details: Vec<Detail>,
}

impl Figure {
    pub fn new(ours: f64, limit: f64, unit: &'static str) -> Self {
        Self {
            ours,
            limit,
            unit,
            ..Self::default()
        }
    }

    /// The same with what the meter has counted.
    pub fn cost(self, meter: &Meter<'_>) -> Self {
        let cost = Some(meter.cost());
        Self { cost, ..self }
    }

    /// The same with one more detail.
    pub fn detail(mut self, name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        let name = name.into();
        let value = rounded(value);
        self.details.push(Detail { name, value, unit });
        self
    }
}

impl From<Figure> for Measured {
    fn from(figure: Figure) -> Self {
        Self::Figures(vec![figure])
    }
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
#[derive(Default, Serialize)]
pub struct Report {
    pub settings: Vec<Setting>,
    pub rows: Vec<Row>,
    pub skipped: Vec<Skipped>,
}

/// Under what circumstances was measured.
#[derive(Serialize)]
pub struct Setting {
    pub of: &'static str,
    pub says: String,
}

/// A figure of a workload on a store.
#[derive(Serialize)]
pub struct Row {
    pub workload: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub part: &'static str,
    pub store: &'static str,
    #[serde(skip)]
    pub about: &'static str,
    pub ours: f64,
    pub limit: f64,
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sync_ms: Option<f64>,
    pub ratio: f64,
    pub floor: f64,
    /// `true` if the floor is one from above: then the ratio may not be greater.
    pub at_most: bool,
    pub met: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// A figure without a limit.
#[derive(Debug, Serialize)]
pub struct Detail {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
}

/// A workload that cannot be measured here.
#[derive(Serialize)]
pub struct Skipped {
    pub workload: &'static str,
    pub store: &'static str,
    pub why: String,
}

impl Report {
    /// Notes under what circumstances was measured.
    pub fn setting(&mut self, of: &'static str, says: String) {
        self.settings.push(Setting { of, says });
    }

    pub fn add(&mut self, workload: Workload, store: Store, measured: Measured) {
        match measured {
            Measured::Skipped(why) => self.skipped.push(Skipped {
                workload: workload.name(),
                store: store.name(),
                why,
            }),
            Measured::Figures(figures) => {
                let rows = figures.into_iter();
                self.rows
                    .extend(rows.map(|figure| Row::of(workload, store, figure)));
            }
        }
    }

    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

impl Row {
    fn of(workload: Workload, store: Store, figure: Figure) -> Self {
        let ratio = figure.ours / figure.limit;
        let (floor, at_most, met) = match figure.floor.unwrap_or(workload.floor(store)) {
            Floor::AtLeast(floor) => (floor, false, ratio >= floor),
            Floor::AtMost(floor) => (floor, true, ratio <= floor),
        };
        Self {
            workload: workload.name(),
            part: figure.part,
            store: store.name(),
            about: workload.about(),
            ours: rounded(figure.ours),
            limit: rounded(figure.limit),
            unit: figure.unit,
            sync_ms: figure.sync_ms.map(rounded),
            ratio: rounded(ratio),
            floor,
            at_most,
            met,
            cost: figure.cost.map(Cost::rounded),
            details: figure.details,
        }
    }

    /// The workload, and which of its figures this is.
    pub fn name(&self) -> String {
        format!("{} {}", self.workload, self.part)
            .trim_end()
            .to_owned()
    }
}

/// To four digits behind the point: more would pretend.
pub fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}
