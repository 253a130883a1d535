//! Problems of graphs, and the inputs of their steps.

use serde_json::{Value, json};

use super::*;

fn read(graph: Value) -> Result<GraphSpec, String> {
    serde_json::from_value(graph).map_err(|error| error.to_string())
}

fn steps(steps: Value) -> GraphSpec {
    read(json!({"name": "g", "steps": steps})).unwrap()
}

fn problems(graph: &GraphSpec) -> Vec<String> {
    check(graph).iter().map(ToString::to_string).collect()
}

/// An event step after `a`, with that `match`.
fn matching(conditions: &Value) -> Value {
    json!([{"name": "a", "task": "t"}, {"name": "z", "task": "t"},
        {"name": "e", "after": ["a"], "wait_for_event": {"event": "x", "match": conditions, "timeout_ms": 1}}])
}

#[test]
fn each_problem_is_reported_with_its_step() {
    // rule 15.2
    let task = |name: &str| json!({"name": name, "task": "t"});
    let condition = |left: &str, op: &str, right: Value| {
        matching(&json!({"left": left, "op": op, "right": right}))
    };
    let long = "x".repeat(300);
    let cases: Vec<(Value, &str, &str)> = vec![
        (json!([]), "", "no steps"),
        (json!([task("a"), task("a")]), "a", "two steps of this name"),
        (
            json!([{"name": "a", "task": "t", "after": ["b"]}]),
            "a",
            "no such step",
        ),
        (
            json!([{"name": "a", "task": "t", "after": ["a"]}]),
            "a",
            "circle",
        ),
        (
            json!([{"name": "a", "task": "t", "after": ["c"]}, {"name": "b", "task": "t", "after": ["a"]},
            {"name": "c", "task": "t", "after": ["b"]}]),
            "b",
            "circle",
        ),
        (
            json!([task("a"), {"name": "b", "task": "t", "after": ["a", "a"]}]),
            "b",
            "twice",
        ),
        (json!([task("")]), "", "1 to 255 bytes"),
        (json!([task("a.b")]), "a.b", "no dots"),
        (json!([task(&long)]), &long, "1 to 255 bytes"),
        (json!([{"name": "a"}]), "a", "nothing"),
        (
            json!([{"name": "a", "task": "t", "sleep": {"duration_ms": 1}}]),
            "a",
            "several things: task, sleep",
        ),
        (json!([{"name": "a", "task": ""}]), "a", "task/"),
        (json!([{"name": "a", "task": long}]), "a", "255"),
        (
            json!([{"name": "a", "task": "t", "timeout_ms": 0}]),
            "a",
            "timeout_ms must be positive",
        ),
        (
            json!([{"name": "a", "task": "t", "schedule_timeout_ms": 0}]),
            "a",
            "schedule_timeout_ms must be positive",
        ),
        (
            json!([{"name": "a", "sleep": {"duration_ms": 1}, "schedule_timeout_ms": 1}]),
            "a",
            "schedule_timeout_ms is for tasks",
        ),
        (json!([{"name": "a", "task": "t", "queue": ""}]), "a", ""),
        (
            json!([{"name": "a", "task": "t", "retry": {"max_attempts": 2, "delay_ms": 1, "factor": 0.5}}]),
            "a",
            "factor is a number from 1",
        ),
        (
            json!([{"name": "a", "task": "t", "retry": {"max_attempts": 0, "delay_ms": 1}}]),
            "a",
            "1 at least",
        ),
        (
            json!([{"name": "a", "sleep": {"duration_ms": 0}}]),
            "a",
            "sleep.duration_ms must be positive",
        ),
        (
            json!([{"name": "a", "sleep": {"duration_ms": 1}, "retry": {"max_attempts": 1, "delay_ms": 1}}]),
            "a",
            "retry is for tasks",
        ),
        (
            json!([{"name": "a", "sleep": {"duration_ms": 1}, "timeout_ms": 5}]),
            "a",
            "timeout_ms is for tasks",
        ),
        (
            json!([{"name": "a", "sleep": {"duration_ms": 1}, "queue": "q"}]),
            "a",
            "queue is for tasks",
        ),
        (
            json!([{"name": "a", "wait_for_signal": {"signal": "s", "timeout_ms": 0}}]),
            "a",
            "wait_for_signal.timeout_ms must be positive",
        ),
        (
            json!([{"name": "a", "wait_for_signal": {"signal": ""}}]),
            "a",
            "",
        ),
        (
            json!([{"name": "a", "wait_for_signal": {"signal": "event:x"}}]),
            "a",
            "event:x",
        ),
        (
            json!([{"name": "a", "wait_for_event": {"event": "x", "timeout_ms": 0}}]),
            "a",
            "wait_for_event.timeout_ms must be positive",
        ),
        (
            json!([{"name": "a", "wait_for_event": {"event": "", "timeout_ms": 1}}]),
            "a",
            "",
        ),
        (
            json!([{"name": "a", "wait_for_event": {"event": "y".repeat(252), "timeout_ms": 1}}]),
            "a",
            "longer",
        ),
        (condition("a..b", "eq", json!(1)), "e", "a..b"),
        (condition("", "eq", json!(1)), "e", "empty"),
        (condition("a", "gt", json!(true)), "e", "a gt"),
        (condition("a", "in", json!(1)), "e", "list"),
        (condition("a", "exists", json!(1)), "e", "true or false"),
        (
            condition("a", "eq", json!("step.z.output.id")),
            "e",
            "does not come before it",
        ),
        (
            condition("a", "eq", json!("step.e.output.id")),
            "e",
            "does not come before it",
        ),
        (
            condition("a", "eq", json!("step.q.output.id")),
            "e",
            "not there",
        ),
        (
            condition("a", "eq", json!("step.a.input.id")),
            "e",
            "is not a reference",
        ),
        (
            condition("a", "eq", json!("step.a")),
            "e",
            "is not a reference",
        ),
        (condition("a", "eq", json!("input.a..b")), "e", "a..b"),
        (
            condition("a", "eq", json!("input.")),
            "e",
            "has no path: write input.path",
        ),
        (
            condition("a", "eq", json!("step.a.output.")),
            "e",
            "has no path: write step.a.output.path, or step.a.output",
        ),
        (
            json!([task("a"), {"name": "b", "task": "t", "skip_if": {"step": "a", "field": "x", "op": "eq", "value": 1}}]),
            "b",
            "does not come before it",
        ),
        (
            json!([{"name": "b", "task": "t", "skip_if": {"step": "q", "field": "x", "op": "eq", "value": 1}}]),
            "b",
            "no such step",
        ),
        (
            json!([task("a"), {"name": "b", "task": "t", "after": ["a"], "skip_if": {"step": "a", "field": ".", "op": "eq", "value": 1}}]),
            "b",
            "skip_if",
        ),
        (
            json!([task("a"), {"name": "b", "task": "t", "after": ["a"], "skip_if": {"step": "a", "field": "x", "op": "in", "value": 1}}]),
            "b",
            "list",
        ),
        (
            json!([{"name": "a", "graph": "other"}]),
            "a",
            "no graph \"other\"",
        ),
        (
            json!([{"name": "a", "graph": {"name": "i", "steps": [{"name": "in", "task": "t", "after": ["x"]}]}}]),
            "a",
            "its graph: step \"in\": it comes after \"x\"",
        ),
    ];
    for (steps_given, step, message) in cases {
        let found = check(&steps(steps_given.clone()));
        let reported = found.iter().any(|one| {
            one.step.as_deref().unwrap_or_default() == step && one.message.contains(message)
        });
        assert!(
            reported,
            "{message:?} of {step:?} in {steps_given}: {found:?}"
        );
        assert_eq!(
            found.len(),
            if message == "circle" {
                steps_given.as_array().map_or(1, Vec::len)
            } else {
                1
            },
            "{steps_given}: {found:?}"
        );
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    // rule 15.2
    let graph = steps(json!([
        {"name": "a", "task": "t", "after": ["b", "unknown_step"], "timeout_ms": 0},
        {"name": "b", "after": ["a"], "wait_for_event": {"event": "x", "timeout_ms": 0, "match": [
            {"left": "", "op": "eq", "right": 1}, {"left": "y", "op": "gt", "right": []}, {"left": "z", "op": "eq", "right": "step.c.output"}]}},
        {"name": "c"}, {"name": "c", "task": "t", "sleep": {"duration_ms": 0}},
    ]));
    let found = problems(&graph);
    for part in [
        "unknown_step",
        "timeout_ms must be positive",
        "circle",
        "it is empty",
        "y gt",
        "step.c.output",
        "two steps",
        "it is nothing",
        "several things",
        "sleep.duration_ms",
    ] {
        assert!(
            found.iter().any(|one| one.contains(part)),
            "{part}: {found:#?}"
        );
    }
}

#[test]
fn too_many_steps_and_graphs_too_deep_in_each_other_are_refused() {
    // rule 15.2
    let many: Vec<Value> = (0..1_001)
        .map(|n| json!({"name": format!("s{n}"), "task": "t"}))
        .collect();
    assert!(problems(&steps(json!(many)))[0].contains("1000 are the most"));
    let mut graph = json!({"name": "g", "steps": [{"name": "a", "task": "t"}]});
    for depth in 0..12 {
        let refused = !check(&read(graph.clone()).unwrap()).is_empty();
        assert_eq!(refused, depth > DEPTH, "{depth}");
        graph = json!({"name": "g", "steps": [{"name": "a", "graph": graph}]});
    }
}

#[test]
fn what_is_not_known_is_named() {
    // rules 15.1 and 15.2
    let step = |fields: Value| {
        let mut step = json!({"name": "a"});
        step.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"name": "g", "steps": [step]})
    };
    let cases = [
        (json!({"name": "g", "steps": [], "stpes": 1}), "stpes"),
        (step(json!({"tsak": "t"})), "tsak"),
        (
            step(json!({"task": "t", "retry": {"max_attempts": 1, "delay_ms": 1, "dealy": 1}})),
            "dealy",
        ),
        (
            step(json!({"task": "t", "retry": {"max_attempts": 1, "delay_ms": 1, "factor": -0.5}})),
            "not a factor",
        ),
        (step(json!({"sleep": {"duration": 1}})), "duration"),
        (step(json!({"sleep": {"duration_ms": -1}})), "-1"),
        (
            step(json!({"wait_for_signal": {"signal": "s", "timeout": 1}})),
            "timeout",
        ),
        (
            step(json!({"wait_for_event": {"event": "x"}})),
            "timeout_ms",
        ),
        (
            step(json!({"wait_for_event": {"event": "x", "timeout_ms": 1, "macth": []}})),
            "macth",
        ),
        (
            step(
                json!({"wait_for_event": {"event": "x", "timeout_ms": 1, "match": {"left": "a", "op": "like", "right": 1}}}),
            ),
            "like",
        ),
        (
            step(
                json!({"wait_for_event": {"event": "x", "timeout_ms": 1, "match": [{"left": "a", "op": "eq"}]}}),
            ),
            "right",
        ),
        (
            step(
                json!({"wait_for_event": {"event": "x", "timeout_ms": 1, "match": {"left": "a", "op": "eq", "right": "text"}}}),
            ),
            "not a reference",
        ),
        (
            step(
                json!({"task": "t", "skip_if": {"step": "b", "field": "f", "op": "~", "value": 1}}),
            ),
            "~",
        ),
        (
            step(
                json!({"task": "t", "skip_if": {"step": "b", "field": "f", "op": "eq", "vlaue": 1}}),
            ),
            "vlaue",
        ),
        (
            step(json!({"graph": {"name": "i", "steps": [{"name": "b", "tsak": 1}]}})),
            "tsak",
        ),
    ];
    for (graph, part) in cases {
        let error = read(graph.clone()).unwrap_err();
        assert!(error.contains(part), "{graph}: {error}");
    }
}

#[test]
fn a_step_is_given_what_came_before_it() {
    // rule 15.3
    let graph = steps(
        json!([{"name": "a", "task": "t"}, {"name": "b", "task": "t", "after": ["a"]},
        {"name": "c", "task": "t", "after": ["b", "a"]}, {"name": "d", "task": "t", "after": ["gone"]}]),
    );
    let outputs: Outputs = [
        ("a".to_owned(), json!({"id": 1}).into()),
        ("b".to_owned(), Json::null()),
    ]
    .into();
    let given = |at: usize| {
        input_of(&graph.steps[at], &json!("in").into(), &outputs)
            .to::<Value>()
            .unwrap()
    };
    assert_eq!((given(0), given(1)), (json!("in"), json!({"id": 1})));
    assert_eq!(
        (given(2), given(3)),
        (json!({"a": {"id": 1}, "b": null}), json!(null))
    );
}

#[test]
fn a_step_is_skipped_when_its_condition_holds() {
    // rules 15.3 and 14.3
    let cases = [
        ("eq", json!(1), json!({"f": "1"}), true),
        ("eq", json!(1), json!({"f": 2}), false),
        ("eq_typed", json!(1), json!({"f": "1"}), false),
        ("ne", json!(1), json!({"f": 2}), true),
        ("ne", json!(1), json!({}), false),
        ("gt", json!(1), json!({"f": 2}), true),
        ("gte", json!(2), json!({"f": 2}), true),
        ("lt", json!(1), json!({"f": 2}), false),
        ("lte", json!(1), json!({"f": "0"}), false),
        ("in", json!([1, 2]), json!({"f": 2}), true),
        ("exists", json!(false), json!(null), true),
        ("exists", json!(true), json!({"f": null}), true),
        ("eq", json!(true), json!(null), false),
        ("eq", json!(1), json!([1]), false),
    ];
    for (op, value, output, skipped) in cases {
        let graph = steps(json!([{"name": "a", "task": "t"},
            {"name": "b", "task": "t", "after": ["a"], "skip_if": {"step": "a", "field": "f", "op": op, "value": value}}]));
        assert_eq!(check(&graph), []);
        let outputs: Outputs = [("a".to_owned(), output.clone().into())].into();
        assert_eq!(
            is_skipped(&graph.steps[1], &outputs),
            skipped,
            "{output} {op} {value}"
        );
        assert!(!is_skipped(&graph.steps[0], &outputs));
    }
}

#[test]
fn references_are_resolved_or_reported_as_impossible() {
    // rule 14.2
    let cases = [
        (json!("input.id"), Ok(json!(7))),
        (json!("input.list.1"), Ok(json!("b"))),
        (json!("step.a.output.o"), Ok(json!({"k": [1]}))),
        (
            json!("step.a.output"),
            Ok(json!({"n": null, "o": {"k": [1]}})),
        ),
        (json!("step.a.output.n"), Ok(json!(null))),
        (json!({"const": "input.id"}), Ok(json!("input.id"))),
        (json!({"const": 1, "x": 2}), Ok(json!({"const": 1, "x": 2}))),
        (json!("input.gone"), Err("input.gone")),
        (json!("input.list.9"), Err("input.list.9")),
        (json!("step.a.output.o.k.x"), Err("step.a.output.o.k.x")),
    ];
    let input: Json = json!({"id": 7, "list": ["a", "b"]}).into();
    let outputs: Outputs = [("a".to_owned(), json!({"n": null, "o": {"k": [1]}}).into())].into();
    for (right, expected) in cases {
        let graph = steps(matching(
            &json!([{"left": "x", "op": "eq", "right": right}]),
        ));
        assert_eq!(check(&graph), [], "{right}");
        let event = graph.steps[2].wait_for_event.as_ref().unwrap();
        match (resolve(event, &input, &outputs), expected) {
            (Ok(wait), Ok(value)) => {
                assert_eq!(wait.conditions[0].right.to::<Value>().unwrap(), value)
            }
            (Err(error), Err(part)) => assert!(
                error.contains(part) && error.contains("cannot be resolved"),
                "{error}"
            ),
            (found, expected) => panic!("{right}: {found:?}, and not {expected:?}"),
        }
    }
    // What it is resolved to must fit the operator too.
    let graph = steps(matching(
        &json!({"left": "x", "op": "in", "right": "input.id"}),
    ));
    assert!(
        resolve(
            graph.steps[2].wait_for_event.as_ref().unwrap(),
            &input,
            &outputs
        )
        .unwrap_err()
        .contains("list")
    );
}

#[test]
fn delays_grow_by_their_factor_up_to_the_longest() {
    // rule 15.1
    let retry = |json: Value| serde_json::from_value::<crate::model::RetrySpec>(json).unwrap();
    let delays =
        |retry: &crate::model::RetrySpec| (1..7).map(|n| retry.delay_ms(n)).collect::<Vec<_>>();
    let plain = retry(json!({"max_attempts": 3, "delay_ms": 10}));
    assert_eq!(delays(&plain), [Some(10), Some(10), None, None, None, None]);
    let grown =
        retry(json!({"max_attempts": 6, "delay_ms": 10, "factor": 2.5, "max_delay_ms": 200}));
    assert_eq!(
        delays(&grown),
        [Some(10), Some(25), Some(62), Some(155), Some(200), None]
    );
    let huge = retry(json!({"max_attempts": 1_000, "delay_ms": u64::MAX, "factor": 1000}));
    assert_eq!(huge.delay_ms(999), Some(u64::MAX));
    assert_eq!(serde_json::to_value(&grown).unwrap()["factor"], json!(2.5));
}

#[test]
fn the_last_steps_and_the_levels_of_a_graph() {
    // rule 15.4
    let graph = steps(
        json!([{"name": "d", "task": "t", "after": ["b", "c"]}, {"name": "c", "task": "t", "after": ["b"]},
        {"name": "b", "task": "t"}, {"name": "e", "task": "t"}]),
    );
    assert_eq!(last_steps(&graph), ["d", "e"]);
    assert_eq!(levels(&graph), [2, 1, 0, 0]);
}

#[test]
fn the_policy_of_a_task_comes_from_its_step() {
    // rules 5.2 and 15.3
    let of = |step: Value| policy_of(&serde_json::from_value(step).unwrap());
    assert_eq!(of(json!({"name": "a", "task": "t"})), None);
    let whole = json!({"name": "a", "task": "t", "schedule_timeout_ms": 5});
    assert_eq!(of(whole), None, "that bounds the step, and not an attempt");
    let both = json!({"name": "a", "task": "t", "timeout_ms": 7, "retry": {"max_attempts": 2, "delay_ms": 1}});
    let policy = of(both).unwrap();
    assert_eq!(policy.step_timeout_ms, Some(7));
    assert_eq!(policy.retry.map(|retry| retry.max_attempts), Some(2));
    let retry = json!({"max_attempts": 2, "delay_ms": u64::MAX, "max_delay_ms": u64::MAX});
    let long = json!({"name": "a", "task": "t", "timeout_ms": u64::MAX, "retry": retry});
    let policy = of(long).unwrap();
    assert_eq!(policy.step_timeout_ms, Some(retry::LONGEST_MS));
    assert_eq!(
        retry::check_own(&policy, crate::model::Kind::Machine),
        Ok(())
    );
}

#[test]
fn what_is_not_over_when_a_run_ends_is_cancelled() {
    // rule 15.4
    let graph = json!({"name": "g", "steps": [
        {"name": "a", "task": "t"}, {"name": "b", "task": "t"}, {"name": "c", "task": "t"}, {"name": "d", "task": "t"},
        {"name": "e", "task": "t"}]});
    let state = |steps: Value| Json::of(&json!({"input": 1, "graph": graph, "steps": steps}));
    let ran = json!({"a": {"status": "done", "output": null}, "b": {"status": "running"},
        "c": {"status": "failed", "error": "no"}, "d": {"status": "skipped"}});
    let shown = ended(&state(ran).unwrap()).unwrap();
    let over = json!({"a": {"status": "done", "output": null}, "b": {"status": "cancelled"},
        "c": {"status": "failed", "error": "no"}, "d": {"status": "skipped"}, "e": {"status": "cancelled"}});
    assert_eq!(shown.to::<Value>().unwrap()["steps"], over);
    assert_eq!(ended(&shown), None, "it is so already");
    assert_eq!(ended(&Json::null()), None, "it is not a graph's");
    let again = restarted(&shown).unwrap().to::<Value>().unwrap();
    let pending = json!({"status": "pending"});
    assert_eq!(
        (&again["input"], &again["graph"]["name"]),
        (&json!(1), &json!("g"))
    );
    assert_eq!(
        again["steps"],
        json!({"a": pending, "b": pending, "c": pending, "d": pending, "e": pending})
    );
    assert_eq!(restarted(&Json::null()), None);
}
