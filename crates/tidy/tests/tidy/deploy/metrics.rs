//! Alerts, the dashboard and the docs name the metrics that the server has, with the labels that these have.

use std::collections::{BTreeMap, BTreeSet};

use abide_tidy::{files, promql, report};
use serde_json::Value;

use super::{first, items, read_json, read_yaml, text, texts_after, words_after};

const RULES: &str = "deploy/prometheus/abide.rules.yml";
const DASHBOARD: &str = "deploy/grafana/abide.json";

/// Labels that Prometheus adds, and that of the buckets of a histogram.
const ADDED: [&str; 3] = ["job", "instance", "le"];

/// The metrics of the server by name, and whether each is a histogram.
fn described() -> BTreeMap<String, bool> {
    let sources = files::rust_sources();
    let sources = sources
        .iter()
        .filter(|file| file.starts_with("crates/server/src/metrics"));
    let mut metrics = BTreeMap::new();
    for source in sources.map(|file| files::read(file)) {
        for (mark, is_histogram) in [
            ("describe_counter!(", false),
            ("describe_gauge!(", false),
            ("describe_histogram!(", true),
        ] {
            let names = texts_after(&source, mark).into_iter().map(str::to_owned);
            metrics.extend(names.map(|name| (name, is_histogram)));
        }
        // Those of the process have no macro.
        let texts = source.split('"').skip(1).step_by(2);
        let names = texts.filter(|text| text.starts_with("process_"));
        metrics.extend(names.map(|name| (name.to_owned(), false)));
    }
    metrics
}

/// The labels of each metric, as the page says.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = files::read("docs/server.md");
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let code = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let named = code.filter_map(|code| {
        let (name, labels) = code.split_once('{').unwrap_or((code, ""));
        let labels = labels.trim_end_matches('}').split(',').map(str::trim);
        let labels = labels.filter(|label| !label.is_empty());
        let is_metric = name.starts_with("abide_") || name.starts_with("process_");
        is_metric.then(|| (name.to_owned(), labels.map(str::to_owned).collect()))
    });
    named.collect()
}

/// The metric that a series belongs to: those of a histogram have an ending.
fn metric_of(series: &str, described: &BTreeMap<String, bool>) -> Option<String> {
    if described.get(series) == Some(&false) {
        return Some(series.to_owned());
    }
    ["_bucket", "_sum", "_count"].iter().find_map(|end| {
        let name = series.strip_suffix(end)?;
        (described.get(name) == Some(&true)).then(|| name.to_owned())
    })
}

#[test]
fn the_docs_name_every_metric() {
    let documented = documented();
    let described = described();
    assert!(!described.is_empty(), "no metric was found in the source");
    let missing = described
        .keys()
        .filter(|name| !documented.contains_key(*name));
    let missing = missing.map(|name| format!("{name} is not in docs/server.md"));
    let gone = documented
        .keys()
        .filter(|name| !described.contains_key(*name));
    let gone = gone.map(|name| format!("docs/server.md names {name}, which does not exist"));
    let problems: Vec<String> = missing.chain(gone).collect();
    report(
        &problems,
        "name it in the table of docs/server.md with its labels: `abide_queue_depth{queue, status}`.",
    );
}

/// All expressions of the alerts and of the dashboard, and the location of each.
fn expressions() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for document in read_yaml(RULES) {
        for group in items(&document, "/groups") {
            for rule in items(group, "/rules") {
                let location = format!("{RULES}: {}", text(rule, "/alert"));
                found.push((location, text(rule, "/expr").to_owned()));
            }
        }
    }
    let dashboard = read_json(DASHBOARD);
    for panel in items(&dashboard, "/panels") {
        let location = format!("{DASHBOARD}: {}", text(panel, "/title"));
        let targets = panel.pointer("/targets").and_then(Value::as_array);
        for target in targets.into_iter().flatten() {
            found.push((location.clone(), text(target, "/expr").to_owned()));
        }
    }
    for variable in items(&dashboard, "/templating/list") {
        if text(variable, "/type") == "query" {
            let location = format!("{DASHBOARD}: ${}", text(variable, "/name"));
            found.push((location, text(variable, "/query").to_owned()));
        }
    }
    for document in read_yaml("deploy/prometheus/abide.tests.yml") {
        for test in items(&document, "/tests") {
            for series in items(test, "/input_series") {
                let location = "deploy/prometheus/abide.tests.yml".to_owned();
                found.push((location, text(series, "/series").to_owned()));
            }
        }
    }
    found
}

#[test]
fn alerts_and_panels_use_metrics_and_labels_that_exist() {
    let (described, documented) = (described(), documented());
    let mut problems = Vec::new();
    let mut seen = 0;
    for (location, expression) in expressions() {
        let query = match promql::read(&expression) {
            Ok(query) => query,
            Err(error) => {
                problems.push(format!("{location}: {error}"));
                continue;
            }
        };
        let mut may_group = BTreeSet::from(ADDED.map(str::to_owned));
        for (series, labels) in &query.metrics {
            if series == "up" {
                continue;
            }
            seen += 1;
            let Some(name) = metric_of(series, &described) else {
                problems.push(format!("{location}: there is no metric {series}"));
                continue;
            };
            let known = documented.get(&name).cloned().unwrap_or_default();
            let unknown = labels
                .iter()
                .filter(|label| !known.contains(*label) && !ADDED.contains(&label.as_str()));
            problems
                .extend(unknown.map(|label| format!("{location}: {name} has no label {label}")));
            may_group.extend(known);
        }
        let unknown = query.groups.difference(&may_group);
        problems.extend(unknown.map(|label| format!("{location}: nothing has the label {label}")));
    }
    assert!(
        seen > 20,
        "only {seen} metrics were found: is it read right?"
    );
    report(
        &problems,
        "name a metric that /metrics has, with labels that docs/server.md gives it; a histogram is named by _bucket, \
         _sum or _count.",
    );
}

/// Every server reports the same figures of the store: a sum over servers would count them several times.
#[test]
fn what_is_the_stores_is_not_summed_over_servers() {
    const OF_THE_STORE: [&str; 6] = [
        "abide_blocked",
        "abide_queue_depth",
        "abide_queue_oldest_ready_seconds",
        "abide_unserved",
        "abide_waits",
        "abide_workers",
    ];
    let mut problems = Vec::new();
    for (location, expression) in expressions() {
        let before = |name: &str| {
            let at = expression.find(&format!("{name}{{"))?;
            expression.get(..at).map(str::to_owned)
        };
        for before in OF_THE_STORE.iter().filter_map(|name| before(name)) {
            let inner = before.trim_end_matches('(').trim_end();
            let inner = match inner.strip_suffix(')') {
                Some(grouped) => grouped.rsplit_once(" by").map_or("", |(word, _)| word),
                None => inner,
            };
            let is_query = expression.starts_with("label_values") || before.is_empty();
            if !is_query && !inner.ends_with("max") {
                problems.push(format!("{location}: {expression}"));
            }
        }
    }
    report(
        &problems,
        "take the max of what the servers say first: sum by (status) (max by (queue, status) (…)).",
    );
}

#[test]
fn alerts_say_how_urgent_they_are_and_name_labels_that_they_have() {
    let mut problems = Vec::new();
    for rule in read_yaml(RULES)
        .iter()
        .flat_map(|document| items(document, "/groups"))
        .flat_map(|group| items(group, "/rules"))
    {
        let name = text(rule, "/alert");
        if !["critical", "warning"].contains(&text(rule, "/labels/severity")) {
            problems.push(format!("{name}: severity is critical or warning"));
        }
        let query = promql::read(text(rule, "/expr")).unwrap_or_default();
        for annotation in ["/annotations/summary", "/annotations/description"] {
            for label in words_after(text(rule, annotation), "$labels.") {
                let has = match query.groups.is_empty() {
                    true => ["instance", "job"].contains(&label) && query.metrics.len() == 1,
                    false => query.groups.contains(label),
                };
                if !has {
                    problems.push(format!("{name}: the alert has no label {label}"));
                }
            }
        }
    }
    report(&problems, "correct the rule in deploy/prometheus.");
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard = read_json(DASHBOARD);
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    let mut problems = Vec::new();
    for panel in items(&dashboard, "/panels") {
        let title = text(panel, "/title");
        if !ids.insert(first(panel, "/id").to_string()) {
            problems.push(format!("{title}: another panel has its id"));
        }
        let number = |name: &str| first(panel, name).as_u64().unwrap_or(u64::MAX);
        let (x, y) = (number("/gridPos/x"), number("/gridPos/y"));
        let (w, h) = (number("/gridPos/w"), number("/gridPos/h"));
        if x + w > 24 {
            problems.push(format!("{title}: a line has 24 columns"));
            continue;
        }
        let own = (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y)));
        if own.filter(|cell| !cells.insert(*cell)).count() > 0 {
            problems.push(format!("{title}: another panel is there"));
        }
    }
    report(&problems, "correct deploy/grafana/abide.json.");
}
