//! Graphs as data: built, written, read, refused and drawn.

use abide::graph::{RetrySpec, input, output};
use abide::message::{eq, exists, gt, one_of};
use abide::time::{hours, millis, secs};
use abide::{Event, Graph};
use serde_json::{Value, json};

fn inner() -> Graph {
    Graph::builder("inner").task("x").build().unwrap()
}

fn rich() -> Graph {
    let event = Event::new("paid")
        .matching("order.id", eq(output("a", "id")))
        .matching("who", eq(input("who")))
        .matching("kind", eq("text"))
        .matching("n", one_of([1, 2]))
        .matching("o", eq(json!({"const": 1})))
        .lookback(secs(5));
    Graph::builder("rich")
        .task("a")
        .timeout(secs(10))
        .retry(3, millis(100))
        .queue("fast")
        .task_named("b", "other")
        .after("a")
        .skip_if("a", "n", gt(5))
        .retry_by(RetrySpec {
            max_attempts: 2,
            delay_ms: 5,
            factor: Some(150),
            max_delay_ms: Some(50),
        })
        .wait_for_event("e", event, hours(1))
        .after("a")
        .wait_for_signal("s", "go")
        .after("a")
        .after("b")
        .timeout(secs(3))
        .wait_for_signal("f", "go")
        .sleep("z", millis(20))
        .after("e")
        .graph("g", &inner())
        .after("z")
        .build()
        .unwrap()
}

#[test]
fn what_is_built_and_what_is_written_are_the_same() {
    // rule 15.1
    let graph = rich();
    assert_eq!(Graph::from_json(&graph.to_json(), &[]).unwrap(), graph);
    let written = json!({"name": "rich", "steps": [
        {"name": "a", "task": "a", "timeout_ms": 10_000, "retry": {"max_attempts": 3, "delay_ms": 100, "factor": 2}, "queue": "fast"},
        {"name": "b", "task": "other", "after": ["a"], "skip_if": {"step": "a", "field": "n", "op": "gt", "value": 5},
            "retry": {"max_attempts": 2, "delay_ms": 5, "factor": 1.5, "max_delay_ms": 50}},
        {"name": "e", "after": ["a"], "wait_for_event": {"event": "paid", "timeout_ms": 3_600_000, "lookback_ms": 5_000, "match": [
            {"left": "order.id", "op": "eq", "right": "step.a.output.id"}, {"left": "who", "op": "eq", "right": "input.who"},
            {"left": "kind", "op": "eq", "right": {"const": "text"}}, {"left": "n", "op": "in", "right": [1, 2]},
            {"left": "o", "op": "eq", "right": {"const": {"const": 1}}}]}},
        {"name": "s", "after": ["a", "b"], "wait_for_signal": {"signal": "go", "timeout_ms": 3_000}},
        {"name": "f", "wait_for_signal": {"signal": "go"}},
        {"name": "z", "after": ["e"], "sleep": {"duration_ms": 20}},
        {"name": "g", "after": ["z"], "graph": "inner"},
    ]});
    assert_eq!(
        Graph::from_json(&written.to_string(), &[inner()]).unwrap(),
        graph
    );
}

#[test]
fn one_condition_may_stand_alone_and_graphs_are_found_by_name_wherever_they_stand() {
    // rule 15.1
    let one = json!({"left": "a", "op": "exists", "right": true});
    let of = |conditions: Value| {
        json!({"name": "g", "steps": [{"name": "e", "wait_for_event": {"event": "x", "timeout_ms": 1, "match": conditions}}]}).to_string()
    };
    assert_eq!(
        Graph::from_json(&of(one.clone()), &[]),
        Graph::from_json(&of(json!([one])), &[])
    );
    let nested = json!({"name": "o", "steps": [{"name": "a", "graph": {"name": "m", "steps": [{"name": "b", "graph": "inner"}]}}]});
    assert!(Graph::from_json(&nested.to_string(), &[inner()]).is_ok());
    let bad = Graph::from_json(&nested.to_string(), &[]).unwrap_err();
    assert!(bad.to_string().contains("no graph \"inner\""), "{bad}");
}

#[test]
fn the_builder_tells_all_that_is_wrong_at_once() {
    // rule 15.2
    let event = Event::new("x")
        .matching("a..b", eq(1))
        .matching("c", eq(output("gone", "id")));
    let bad = Graph::builder("bad")
        .after("early")
        .task("a")
        .after("b")
        .timeout(millis(0))
        .task("b")
        .after("a")
        .wait_for_event("e", event, millis(0))
        .retry(1, millis(1))
        .build()
        .unwrap_err();
    let text = bad.to_string();
    for part in [
        "after is about the step before it",
        "timeout_ms must be positive",
        "circle",
        "a..b",
        "\"step.gone.output.id\"",
        "wait_for_event.timeout_ms must be positive",
        "retry is for tasks",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        bad.problems
            .iter()
            .any(|one| one.step.as_deref() == Some("e"))
    );
    assert!(
        Graph::builder("none")
            .build()
            .unwrap_err()
            .to_string()
            .contains("no steps")
    );
    assert!(Graph::builder("").task("a").build().is_err());
    for broken in ["", "[]", "{}", "{\"name\": 1}", "null"] {
        assert!(Graph::from_json(broken, &[]).is_err(), "{broken}");
    }
}

#[test]
fn what_cannot_be_read_hides_nothing_else_that_is_wrong() {
    // rule 15.2
    let wrong = json!({"name": "g", "colour": 1, "steps": [
        {"name": "a", "task": 7, "timeout_ms": "soon", "retry": {"max_attempts": 0, "delay_ms": 1}, "after": ["gone"]},
        {"name": "b", "task": "x", "tsak": "y", "queue": "", "after": ["a"]},
        {"name": "c", "wait_for_event": {"event": "paid", "match": {"left": "", "op": "like", "right": 1}}, "skip_if": {"step": "d"}},
        {"name": "d", "sleep": {"duration_ms": 0}, "after": "c"},
        {"task": "x", "after": ["d"]},
        {"name": "e", "graph": {"name": "inner", "steps": [{"name": "f", "tsak": 1}, {"name": "g", "task": ""}]}},
        17,
        {"name": "h", "task": "x", "after": ["a", "step 7"]},
    ]});
    let bad = Graph::from_json(&wrong.to_string(), &[]).unwrap_err();
    let reported = |step: Option<&str>, part: &str| {
        let of = bad
            .problems
            .iter()
            .filter(|one| one.step.as_deref() == step);
        assert!(
            of.clone().any(|one| one.message.contains(part)),
            "{step:?} {part}: {bad}"
        );
    };
    reported(None, "unknown field `colour`");
    reported(Some("a"), "`task` is 7: expected a string");
    reported(
        Some("a"),
        "`timeout_ms` is \"soon\": expected a whole number",
    );
    reported(Some("a"), "retry.max_attempts counts the first attempt");
    reported(Some("a"), "after \"gone\"");
    reported(Some("b"), "unknown field `tsak`");
    reported(Some("b"), "it is empty");
    reported(Some("c"), "`wait_for_event.match.op` is \"like\"");
    reported(Some("c"), "`skip_if.field` is missing");
    reported(Some("d"), "`after` is \"c\": expected a list");
    reported(Some("d"), "sleep.duration_ms must be positive");
    reported(None, "step 5: it has no name");
    reported(Some("e"), "its graph: step \"f\": unknown field `tsak`");
    reported(Some("e"), "its graph: step \"f\": it is nothing");
    reported(Some("e"), "its graph: step \"g\": its task has no name");
    reported(None, "step 7: it is 17: expected an object");
    let of = |step: &str| {
        bad.problems
            .iter()
            .any(|one| one.step.as_deref() == Some(step))
    };
    assert!(!of("h"), "nothing is wrong with it: {bad}");
    let nothing = |step: &str| {
        bad.problems
            .iter()
            .any(|one| one.step.as_deref() == Some(step) && one.message.contains("it is nothing"))
    };
    assert!(
        !nothing("a") && !nothing("c"),
        "what it is was there, and could not be read: {bad}"
    );
    let twice = Graph::from_json(
        r#"{"name": "g", "steps": [{"name": "a", "task": "x", "task": "y"}]}"#,
        &[],
    );
    assert!(
        twice
            .unwrap_err()
            .to_string()
            .contains("duplicate field `task`")
    );
}

#[test]
fn a_graph_with_very_much_wrong_is_refused_soon() {
    // rule 15.2: its time does not grow with the square of what is wrong, and its answer has a limit.
    let fields: Vec<String> = (0..100_000).map(|n| format!("\"f{n}\": 1")).collect();
    let many_fields = format!("{{\"name\": \"g\", \"steps\": [{{{}}}]}}", fields.join(","));
    let many_steps = format!(
        "{{\"name\": \"g\", \"steps\": [{}]}}",
        vec!["7"; 1_000_000].join(",")
    );
    for huge in [many_fields, many_steps] {
        let problems = Graph::from_json(&huge, &[]).unwrap_err().problems;
        assert_eq!(problems.len(), 101);
        assert!(
            problems[100].message.contains("there may be more"),
            "{}",
            problems[100]
        );
    }
}

#[test]
fn a_reference_where_none_can_be_is_refused() {
    // rule 15.2
    let of = |test| {
        Graph::builder("g")
            .task("a")
            .wait_for_event("e", Event::new("x").matching("n", test), secs(1))
            .after("a")
            .build()
    };
    assert!(of(eq(output("a", "id"))).is_ok() && of(exists(true)).is_ok());
    assert!(
        of(one_of([output("a", "id")])).is_err(),
        "in a list it would be an object like any other"
    );
    let skip = Graph::builder("g")
        .task("a")
        .task("b")
        .after("a")
        .skip_if("a", "n", eq(input("id")))
        .build();
    assert!(skip.is_err());
}

#[test]
fn it_is_drawn_with_every_name_as_it_is() {
    // rule 15.1
    let odd = "say \"<hi> & 'bye'\" ключ 😀 #1; a|b]";
    let graph = Graph::builder("<g> & \"co\"")
        .task("start")
        .task_named(odd, "t")
        .after("start")
        .wait_for_signal("w", "go")
        .after("start")
        .sleep("z", secs(1))
        .after(odd)
        .after("w")
        .graph("inner graph", &inner())
        .after("z")
        .build()
        .unwrap();
    let svg = graph.to_svg();
    well_formed(&svg);
    assert!(
        svg.contains("say &quot;&lt;hi&gt; &amp; 'bye'&quot; ключ 😀") && !svg.contains("<hi>")
    );
    assert!(svg.contains("<title>&lt;g&gt; &amp; &quot;co&quot;</title>"));
    assert_eq!(
        (
            svg.matches("<rect").count(),
            svg.matches("marker-end").count()
        ),
        (5, 5)
    );
    let mermaid = graph.to_mermaid();
    assert!(mermaid.starts_with("flowchart TD\n"));
    assert_eq!(
        (mermaid.lines().count(), mermaid.matches(" --> ").count()),
        (11, 5)
    );
    for line in mermaid.lines().filter(|line| line.contains('"')) {
        assert_eq!(line.matches('"').count(), 2, "{line}");
        assert!(
            !line.contains('<') && !line.contains("#1;"),
            "it would be read as HTML, or as a code: {line}"
        );
    }
}

/// Asserts that every open tag is closed, in order, and that all text is escaped.
fn well_formed(svg: &str) {
    let mut open = Vec::new();
    let mut rest = svg;
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "{text}");
        let (tag, after) = after.split_once('>').unwrap();
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
        rest = after;
    }
    assert!(open.is_empty(), "{open:?}");
}
