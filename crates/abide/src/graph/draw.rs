//! Draws a graph as Mermaid and as SVG.

use std::fmt::Write;

use abide_core::model::StepSpec;
use abide_core::rules::graph::levels;

use super::Graph;

impl Graph {
    /// Draws the graph as a Mermaid flowchart.
    pub fn to_mermaid(&self) -> String {
        let mut text = "flowchart TD\n".to_owned();
        let steps = &self.spec().steps;
        for (at, step) in steps.iter().enumerate() {
            let label = coded(&label(step));
            let (open, close) = match step.task.is_some() || step.graph.is_some() {
                true => ("[", "]"),
                false => ("{{", "}}"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "    s{at}{open}\"{label}\"{close}");
        }
        for (at, before) in edges(steps) {
            let _ = writeln!(text, "    s{before} --> s{at}");
        }
        text
    }

    /// Draws the graph as SVG.
    pub fn to_svg(&self) -> String {
        const WIDE: usize = 200;
        const HIGH: usize = 44;
        const GAP: usize = 40;
        const EDGE: usize = 20;
        let steps = &self.spec().steps;
        let levels = levels(self.spec());
        let mut filled: Vec<usize> = Vec::new();
        let mut positions = Vec::with_capacity(steps.len());
        for level in levels {
            if filled.len() <= level {
                filled.resize(level + 1, 0);
            }
            let column = filled.get(level).copied().unwrap_or_default();
            if let Some(count) = filled.get_mut(level) {
                *count += 1;
            }
            positions.push((EDGE + column * (WIDE + GAP), EDGE + level * (HIGH + GAP)));
        }
        let columns = filled.iter().copied().max().unwrap_or(1).max(1);
        let width = 2 * EDGE + columns * (WIDE + GAP) - GAP;
        let height = 2 * EDGE + filled.len().max(1) * (HIGH + GAP) - GAP;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{name}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{name}</title>\n",
            name = escaped(self.name())
        );
        svg.push_str(
            "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" fill=\"#666\"/></marker></defs>\n",
        );
        for (at, before) in edges(steps) {
            if let (Some((x, y)), Some((from_x, from_y))) =
                (positions.get(at), positions.get(before))
            {
                let (start_x, start_y) = (from_x + WIDE / 2, from_y + HIGH);
                let (end_x, end_y) = (x + WIDE / 2, *y);
                let middle = start_y.midpoint(end_y);
                let _ = writeln!(
                    svg,
                    "<path d=\"M{start_x} {start_y} C{start_x} {middle} {end_x} {middle} {end_x} {end_y}\" \
                     fill=\"none\" stroke=\"#666\" marker-end=\"url(#tip)\"/>"
                );
            }
        }
        for (step, (x, y)) in steps.iter().zip(&positions) {
            let (fill, round) = match step.task.is_some() || step.graph.is_some() {
                true => ("#e8f0fe", 6),
                false => ("#fef7e0", HIGH / 2),
            };
            let (text_x, text_y) = (x + WIDE / 2, y + HIGH / 2 + 5);
            let whole = escaped(&label(step));
            let short = escaped(&shortened(&label(step)));
            let _ = writeln!(
                svg,
                "<g><title>{whole}</title><rect x=\"{x}\" y=\"{y}\" width=\"{WIDE}\" height=\"{HIGH}\" rx=\"{round}\" \
                 fill=\"{fill}\" stroke=\"#666\"/><text x=\"{text_x}\" y=\"{text_y}\" \
                 text-anchor=\"middle\">{short}</text></g>"
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The label of a step.
fn label(step: &StepSpec) -> String {
    let name = &step.name;
    if let Some(event) = &step.wait_for_event {
        format!("{name}: event {}", event.event)
    } else if let Some(signal) = &step.wait_for_signal {
        format!("{name}: signal {}", signal.signal)
    } else if let Some(sleep) = &step.sleep {
        format!("{name}: sleep {} ms", sleep.duration_ms)
    } else if let Some(graph) = &step.graph {
        format!("{name}: graph {}", graph.name())
    } else {
        match &step.task {
            Some(task) if task != name => format!("{name}: {task}"),
            _ => name.clone(),
        }
    }
}

/// Shortens a label to the space in a box.
fn shortened(label: &str) -> String {
    const ROOM: usize = 27;
    if label.chars().count() <= ROOM {
        return label.to_owned();
    }
    let head: String = label.chars().take(ROOM - 1).collect();
    format!("{head}…")
}

/// The edges from each step to the steps before it, by index.
fn edges(steps: &[StepSpec]) -> Vec<(usize, usize)> {
    let index_of = |name: &String| steps.iter().position(|step| step.name == *name);
    let mut edges = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        edges.extend(
            step.after
                .iter()
                .filter_map(index_of)
                .map(|before| (at, before)),
        );
    }
    edges
}

/// Escapes a label for Mermaid: characters with a meaning there are written as codes.
fn coded(label: &str) -> String {
    let mut coded = String::with_capacity(label.len());
    for char in label.chars() {
        match char {
            '"' => coded.push_str("#quot;"),
            '#' => coded.push_str("#35;"),
            '&' => coded.push_str("#amp;"),
            '<' => coded.push_str("#lt;"),
            '>' => coded.push_str("#gt;"),
            '`' => coded.push_str("#96;"),
            char if char.is_control() => coded.push('\u{fffd}'),
            char => coded.push(char),
        }
    }
    coded
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            char if char.is_control() => escaped.push('\u{fffd}'),
            char => escaped.push(char),
        }
    }
    escaped
}
