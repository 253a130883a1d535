//! Plots of a report, as SVG that is readable on a light and on a dark page.

use std::fmt::Write as _;
use std::path::Path;

use crate::Result;
use crate::report::{Report, Row};
use crate::site::Store;
use crate::table::grouped;

/// A drawing: its title and the name of its file.
pub type Plot = (String, String);

/// Writes the plots of what was measured into a directory.
pub fn write(report: &Report, directory: &Path) -> Result<Vec<Plot>> {
    std::fs::create_dir_all(directory)?;
    let mut plots = Vec::new();
    for (name, chart) in charts(report) {
        if let Some(svg) = chart.svg() {
            let name = format!("{name}.svg");
            std::fs::write(directory.join(&name), svg)?;
            plots.push((chart.title, name));
        }
    }
    Ok(plots)
}

fn charts(report: &Report) -> Vec<(String, Chart)> {
    let rows =
        |wanted: &dyn Fn(&&Row) -> bool| report.rows.iter().filter(wanted).collect::<Vec<_>>();
    let mut charts = Vec::new();
    for store in Store::ALL.iter().map(|store| store.name()) {
        let rates = rows(&|row| row.store == store && !row.at_most && row.unit.ends_with("/s"));
        let bars = rates
            .iter()
            .map(|row| (row.name(), vec![row.ours, row.limit]));
        let title = format!("Rates on {store}, a second");
        charts.push((
            format!("rates-{store}"),
            Chart::bars(title, &["abide", "limit"], bars),
        ));
    }
    let costs = report.rows.iter().filter_map(|row| {
        let cost = row.cost?;
        // Of 10,000 steps in seconds, so of one in hundreds of microseconds.
        let micros = [cost.engine_cpu_s, cost.database_cpu_s];
        let micros = micros.iter().flatten().map(|seconds| seconds * 100.0);
        Some((labelled(row), micros.collect()))
    });
    let title = "CPU time of a step, in µs".to_owned();
    charts.push((
        "cpu".to_owned(),
        Chart::bars(title, &["engine", "database"], costs),
    ));
    let latencies = rows(&|row| row.workload == "W7");
    let groups = latencies.chunks(3).filter_map(|group| {
        let first = group.first()?;
        let kind = first.part.split(' ').next()?;
        Some((
            format!("{kind}, {}", first.store),
            group.iter().map(|row| row.ours).collect(),
        ))
    });
    let title = "Latency at half of the highest rate, in ms".to_owned();
    charts.push((
        "latency".to_owned(),
        Chart::bars(title, &["p50", "p99", "p99.9"], groups),
    ));
    for (workload, name, title, across) in [
        (
            "W8",
            "engines",
            "Instances of one step a second, by engines on one PostgreSQL",
            "engines",
        ),
        (
            "W6-held",
            "held",
            "Median latency in ms while another session holds a snapshot",
            "seconds",
        ),
    ] {
        let rows = rows(&|row| row.workload == workload && !row.details.is_empty());
        let lines = rows.iter().map(|row| (labelled(row), points(row)));
        charts.push((
            name.to_owned(),
            Chart::lines(title.to_owned(), across, lines),
        ));
    }
    charts
}

/// What the row is of, and where.
fn labelled(row: &Row) -> String {
    let name = match row.part {
        "" => row.workload,
        part => part,
    };
    format!("{name}, {}", row.store)
}

/// The details of a row by the number in their names: `4 engines`, `after 2.5 s`.
fn points(row: &Row) -> Vec<(f64, f64)> {
    let number = |name: &str| name.split(' ').find_map(|word| word.parse::<f64>().ok());
    let points = row.details.iter();
    points
        .filter_map(|detail| Some((number(&detail.name)?, detail.value)))
        .collect()
}

struct Chart {
    title: String,
    data: Data,
}

enum Data {
    /// Groups of bars, a bar for each series.
    Bars {
        series: Vec<String>,
        groups: Vec<(String, Vec<f64>)>,
    },
    /// Lines over a number.
    Lines {
        across: &'static str,
        lines: Vec<(String, Vec<(f64, f64)>)>,
    },
}

/// The drawing's width and margin, and the height of a line of text, of a bar and of the field of lines.
const WIDTH: f64 = 720.0;
const MARGIN: f64 = 16.0;
const TEXT: f64 = 20.0;
const BAR: f64 = 13.0;
const FIELD: f64 = 240.0;
/// Space for labels at the left and for figures at the right.
const LABELS: f64 = 130.0;
const FIGURES: f64 = 70.0;

/// Colours that stand out from white and from black alike. A page does not tell an image whether it is dark: what the
/// image can ask for is what the system prefers.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#6e7781}.title{font-weight:600;font-size:15px}\
.axis{stroke:#8c959f}.grid{stroke:#8c959f;stroke-opacity:.3}.line{fill:none;stroke-width:2}\
.f0{fill:#2f81f7}.f1{fill:#8c959f}.f2{fill:#bf8700}.f3{fill:#8957e5}\
.s0{stroke:#2f81f7}.s1{stroke:#8c959f}.s2{stroke:#bf8700}.s3{stroke:#8957e5}";

impl Chart {
    fn bars(
        title: String,
        series: &[&str],
        groups: impl Iterator<Item = (String, Vec<f64>)>,
    ) -> Self {
        let series = series.iter().map(|name| (*name).to_owned()).collect();
        let groups = groups.collect();
        Self {
            title,
            data: Data::Bars { series, groups },
        }
    }

    fn lines(
        title: String,
        across: &'static str,
        lines: impl Iterator<Item = (String, Vec<(f64, f64)>)>,
    ) -> Self {
        let lines = lines.collect();
        Self {
            title,
            data: Data::Lines { across, lines },
        }
    }

    /// The drawing; `None` if there is nothing to draw.
    fn svg(&self) -> Option<String> {
        let (names, drawn, height) = match &self.data {
            Data::Bars { series, groups } => {
                let names: Vec<&str> = series.iter().map(String::as_str).collect();
                let (drawn, height) = draw_bars(groups)?;
                (names, drawn, height)
            }
            Data::Lines { across, lines } => {
                let names = lines.iter().map(|(name, _)| name.as_str()).collect();
                let (drawn, height) = draw_lines(across, lines)?;
                (names, drawn, height)
            }
        };
        let mut head = text(
            MARGIN,
            MARGIN + TEXT / 2.0,
            "start",
            " class=\"title\"",
            &self.title,
        );
        let mut x = MARGIN;
        for (number, name) in names.iter().enumerate() {
            let y = MARGIN + TEXT;
            head.push_str(&format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\" rx=\"2\" class=\"f{}\"/>",
                number % 4
            ));
            head.push_str(&text(x + 16.0, y + 10.0, "start", "", name));
            x += 36.0 + 7.5 * name.chars().count() as f64;
        }
        Some(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\"><title>{}</title><style>{STYLE}</style>{head}{drawn}</svg>\n",
            escaped(&self.title)
        ))
    }
}

/// Where the drawing begins below the title and the legend.
const TOP: f64 = MARGIN + 2.0 * TEXT + 12.0;

/// The bars, and the height of the whole.
fn draw_bars(groups: &[(String, Vec<f64>)]) -> Option<(String, f64)> {
    let values = groups.iter().flat_map(|(_, values)| values);
    let most = values
        .copied()
        .filter(|value| *value > 0.0)
        .reduce(f64::max)?;
    let scale = (WIDTH - 2.0 * MARGIN - LABELS - FIGURES) / most;
    let (left, mut y, mut drawn) = (MARGIN + LABELS, TOP, String::new());
    for (label, values) in groups {
        let height = values.len() as f64 * (BAR + 1.0);
        drawn.push_str(&text(left - 8.0, y + height / 2.0 + 4.0, "end", "", label));
        for (number, value) in values.iter().enumerate() {
            let width = (value * scale).max(1.0);
            // Writing to a string does not fail.
            let _ = write!(
                drawn,
                "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\" class=\"f{}\"/>",
                number % 4
            );
            drawn.push_str(&text(
                left + width + 6.0,
                y + BAR - 2.0,
                "start",
                "",
                &grouped(*value),
            ));
            y += BAR + 1.0;
        }
        y += 8.0;
    }
    let _ = write!(
        drawn,
        "<line x1=\"{left}\" y1=\"{TOP}\" x2=\"{left}\" y2=\"{:.1}\" class=\"axis\"/>",
        y - 8.0
    );
    Some((drawn, y + MARGIN - 8.0))
}

/// The lines with their axes, and the height of the whole.
fn draw_lines(across: &str, lines: &[(String, Vec<(f64, f64)>)]) -> Option<(String, f64)> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let widest = points().map(|(x, _)| *x).reduce(f64::max)?;
    let step = round_step(points().map(|(_, y)| *y).reduce(f64::max)?);
    let highest = step
        * (points().map(|(_, y)| *y).reduce(f64::max)? / step)
            .ceil()
            .max(1.0);
    let (left, right, bottom) = (MARGIN + FIGURES, WIDTH - MARGIN - 8.0, TOP + FIELD);
    let at = |(x, y): (f64, f64)| {
        let across = left + (right - left) * x / widest;
        (across, bottom - FIELD * y / highest)
    };
    let mut drawn = String::new();
    let mut value = 0.0;
    while value <= highest * 1.001 {
        let (_, y) = at((0.0, value));
        let class = if value == 0.0 { "axis" } else { "grid" };
        let _ = write!(
            drawn,
            "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" class=\"{class}\"/>"
        );
        drawn.push_str(&text(left - 8.0, y + 4.0, "end", "", &grouped(value)));
        value += step;
    }
    for x in lines.first()?.1.iter().map(|(x, _)| *x) {
        drawn.push_str(&text(
            at((x, 0.0)).0,
            bottom + 18.0,
            "middle",
            "",
            &x.to_string(),
        ));
    }
    drawn.push_str(&text(
        (left + right) / 2.0,
        bottom + 38.0,
        "middle",
        "",
        across,
    ));
    for (number, (_, points)) in lines.iter().enumerate() {
        let number = number % 4;
        let places: Vec<(f64, f64)> = points.iter().map(|point| at(*point)).collect();
        let path: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = write!(
            drawn,
            "<polyline points=\"{}\" class=\"line s{number}\"/>",
            path.join(" ")
        );
        for (x, y) in places {
            let _ = write!(
                drawn,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"f{number}\"/>"
            );
        }
    }
    Some((drawn, bottom + 38.0 + MARGIN))
}

/// A round number, so that it takes three to seven of it to reach that far.
fn round_step(most: f64) -> f64 {
    let whole = 10.0_f64.powf((most.max(1e-6) / 3.0).log10().floor());
    let steps = [5.0, 2.0].map(|factor| factor * whole);
    steps
        .into_iter()
        .find(|step| most / step >= 3.0)
        .unwrap_or(whole)
}

fn text(x: f64, y: f64, anchor: &str, class: &str, content: &str) -> String {
    let content = escaped(content);
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>{content}</text>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Figure, Measured};
    use crate::workloads::Workload;

    #[test]
    fn what_was_measured_is_drawn_and_nothing_else() {
        let mut report = Report::default();
        let rate = Figure::new(41_000.0, 50_000.0, "instances/s");
        report.add(Workload::W1, Store::Sqlite, rate.into());
        let held = Figure {
            part: "claim",
            ..Figure::new(2.0, 1.0, "ms")
        };
        let held = held
            .detail("after 2.5 s", 1.5, "ms")
            .detail("after 5.0 s", 2.0, "ms");
        report.add(Workload::Held, Store::Sqlite, Measured::Figures(vec![held]));
        let dir = tempfile::tempdir().unwrap();
        let plots = write(&report, dir.path()).unwrap();
        let names: Vec<&str> = plots.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["rates-sqlite.svg", "held.svg"]);
        let rates = std::fs::read_to_string(dir.path().join("rates-sqlite.svg")).unwrap();
        assert!(
            rates.contains(">41,000</text>") && rates.contains(">W1</text>"),
            "{rates}"
        );
        let held = std::fs::read_to_string(dir.path().join("held.svg")).unwrap();
        assert!(
            held.contains(">claim, sqlite</text>") && held.contains("<polyline"),
            "{held}"
        );
    }

    #[test]
    fn steps_of_an_axis_are_round() {
        let steps = [0.7, 1.0, 3.2, 45.0, 64_000.0].map(round_step);
        assert_eq!(steps, [0.2, 0.2, 1.0, 10.0, 20_000.0]);
    }
}
