//! The errors that `#[machine]` reports for mistakes, and the piece of the source that the compiler shows for each.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const STEP: &str = "async fn start() -> Outcome<Self> { done(()) }";

/// The macros, as the compiler loads them: the newest that were built.
fn macros() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = std::fs::read_dir(test.parent().unwrap()).unwrap();
    let built = built.map(|file| file.unwrap());
    let is_library = |name: &str| {
        name.contains("abide_macros-")
            && [".so", ".dylib", ".dll"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    let libraries = built.filter(|file| is_library(&file.file_name().to_string_lossy()));
    let newest = libraries.max_by_key(|file| file.metadata().unwrap().modified().unwrap());
    newest.unwrap().path()
}

/// Each mistake, with the source from where it points to.
fn mistakes(options: &str, item: &str) -> Vec<(String, String)> {
    let source = format!("#[abide_macros::machine({options})] {item}");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut compiler = Command::new(rustc)
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--emit=metadata",
            "--error-format=short",
        ])
        .arg("--extern")
        .arg(format!("abide_macros={}", macros().display()))
        .arg("--out-dir")
        .arg(std::env::temp_dir())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(source.as_bytes()).unwrap();
    drop(input);
    let output = compiler.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let lines = stderr
        .lines()
        .filter_map(|line| line.split_once(": error: "));
    let source_at = |at: &str| {
        let mut numbers = at
            .rsplit(':')
            .map(|number| number.parse::<usize>().unwrap());
        let (column, line) = (numbers.next().unwrap(), numbers.next().unwrap());
        source.lines().nth(line - 1).unwrap()[column - 1..].to_owned()
    };
    let found: Vec<_> = lines
        .map(|(at, message)| (source_at(at), message.to_owned()))
        .collect();
    assert!(
        !found.is_empty(),
        "{source} compiles, or fails otherwise: {stderr}"
    );
    found
}

/// Returns the only mistake, which must point to the source that begins with `span`.
fn mistake(options: &str, item: &str, span: &str) -> String {
    let mut all = mistakes(options, item);
    assert!(
        all.len() == 1 && all[0].0.starts_with(span),
        "{all:?} at {span}"
    );
    all.remove(0).1
}

/// Returns the only mistake of a block with these items.
fn mistake_in(items: &str, span: &str) -> String {
    mistake("steps = At", &format!("impl Checkout {{ {items} }}"), span)
}

#[test]
fn only_an_impl_block_is_a_machine() {
    let message = "a machine is an `impl` block: write `#[machine(steps = At)] impl Checkout { ... }` with one async \
                   function for each step";
    for item in [
        "/** An order. */ struct Checkout { item: String }",
        "async fn checkout() {}",
        "mod checkout { fn start() {} }",
    ] {
        assert_eq!(
            mistake("steps = At", item, "#[abide_macros::machine"),
            message
        );
    }
    let item = format!("impl &'static Checkout {{ {STEP} }}");
    assert_eq!(mistake("steps = At", &item, "&'static Checkout"), message);
}

#[test]
fn a_trait_is_not_implemented_by_hand() {
    let item = format!("impl Machine for Checkout {{ {STEP} }}");
    assert_eq!(
        mistake("steps = At", &item, "Machine for"),
        "a machine's block implements no trait: write `impl Checkout`; `Machine` is implemented for you"
    );
}

#[test]
fn the_enum_of_the_steps_has_a_name() {
    let item = format!("impl Checkout {{ {STEP} }}");
    for options in ["", "state = u32"] {
        assert_eq!(
            mistake(options, &item, "#[abide_macros::machine"),
            "the enum of the steps has no name: write `#[machine(steps = At)]`, and `At::Ship` is the step of \
             `async fn ship`"
        );
    }
}

#[test]
fn a_machine_has_a_step() {
    for items in ["", "fn retry(&self) -> Retry { Retry::never() }"] {
        assert_eq!(
            mistake_in(items, "Checkout"),
            "an instance must begin somewhere: add at least one step, such as `async fn start(ctx: &mut \
             Context<Self>) -> Outcome<Self>`; the first is where it begins"
        );
    }
}

#[test]
fn a_step_is_async() {
    let step = "fn ship(&self, ctx: &mut Context<Self>) -> Outcome<Self> { done(()) }";
    assert_eq!(
        mistake_in(step, "ship("),
        "`ship` is not async, and a step is: write `async fn ship`, or move it into another `impl` block if it is not a step"
    );
}

#[test]
fn a_step_answers() {
    assert_eq!(
        mistake_in("async fn ship(ctx: &mut Context<Self>) {}", "ship("),
        "a step answers what comes next: write `-> Outcome<Self>`, as in `async fn ship(&self, ctx: &mut \
         Context<Self>) -> Outcome<Self>`"
    );
}

#[test]
fn a_step_is_given_its_context_alone() {
    let step =
        "async fn ship(&self, ctx: &mut Context<Self>, order: Order) -> Outcome<Self> { done(()) }";
    assert_eq!(
        mistake_in(step, "Order)"),
        "a step is given its context and nothing else: write `async fn ship(&self, ctx: &mut Context<Self>) -> \
         Outcome<Self>`, and keep what it needs in the state"
    );
}

#[test]
fn a_step_is_not_generic() {
    for parameter in ["T: Bank", "const N: usize"] {
        let step = format!("async fn ship<'c, {parameter}>() -> Outcome<Self> {{ done(()) }}");
        assert_eq!(
            mistake_in(&step, parameter),
            "a step cannot be generic: the engine calls it by its name alone; keep what varies in the state"
        );
    }
}

#[test]
fn a_machine_is_borrowed_and_shared() {
    for receiver in [
        "self",
        "&mut self",
        "mut self",
        "self: Arc<Self>",
        "self: &Self",
    ] {
        let step = format!("async fn ship({receiver}) -> Outcome<Self> {{ done(()) }}");
        assert_eq!(
            mistake_in(&step, receiver),
            "a machine is shared by all of its instances: a step takes `&self`, or no `self` at all"
        );
    }
    let items = format!("{STEP} fn retry(self) -> Retry {{ Retry::never() }}");
    assert_eq!(
        mistake_in(&items, "self) -> Retry"),
        "a machine is shared by all of its instances: `retry` takes `&self`, or no `self` at all"
    );
}

#[test]
fn the_other_functions_are_those_of_the_trait() {
    for (function, name, written) in [
        (
            "async fn retry(&self, ctx: &mut Context<Self>) -> Outcome<Self> { done(()) }",
            "retry",
            "fn retry(&self) -> Retry",
        ),
        (
            "fn messages(&self) -> Messages { Messages::any() }",
            "messages",
            "fn messages() -> Messages",
        ),
        (
            "async fn on_error(&self, fault: &Fault) -> Outcome<Self> { stop(fault) }",
            "on_error",
            "async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self>",
        ),
        (
            "fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self> { reply(&1) }",
            "on_update",
            "async fn on_update(&self, call: &Call<'_>, ctx: &mut Context<Self>) -> Answer<Self>",
        ),
        (
            "fn time_limit(&self, at: At) { None }",
            "time_limit",
            "fn time_limit(&self, at: At) -> Option<Duration>",
        ),
    ] {
        let message = format!(
            "`{name}` is a function of `Machine` and not a step: write `{written}`, or rename it"
        );
        assert_eq!(
            mistake_in(&format!("{STEP} {function}"), &format!("{name}(")),
            message
        );
    }
    let named = r#"#[step(name = "again")] fn retry() -> Retry { Retry::never() }"#;
    assert_eq!(
        mistake_in(&format!("{STEP} {named}"), "#[step"),
        "`retry` is a function of `Machine` and not a step: remove this attribute"
    );
}

#[test]
fn only_functions_are_in_the_block() {
    for item in ["const MOST: u32 = 3;", "type State = u32;"] {
        assert_eq!(
            mistake_in(&format!("{STEP} {item}"), item),
            "a machine's block holds its steps: move this into another `impl` block"
        );
    }
}

#[test]
fn two_steps_with_one_name_or_variant_are_refused() {
    let other = r#"#[step(name = "start")] async fn begin() -> Outcome<Self> { done(()) }"#;
    let message = "two steps are named \"start\": give this one a name of its own";
    assert_eq!(
        mistake_in(&format!("{STEP} {other}"), r#""start")]"#),
        message
    );
    assert_eq!(mistake_in(&format!("{STEP} {STEP}"), "start()"), message);
    let items = "async fn try2() -> Outcome<Self> { done(()) } async fn try_2() -> Outcome<Self> { done(()) }";
    assert_eq!(
        mistake_in(items, "try_2"),
        "`try2` and `try_2` are both the step `Try2`: rename one of them"
    );
}

#[test]
fn a_name_must_do() {
    let step = r#"#[step(name = "")] async fn ask_again() -> Outcome<Self> { done(()) }"#;
    assert_eq!(
        mistake_in(step, r#""")"#),
        "a step's name cannot be empty: write one, or remove the attribute to store \"ask_again\""
    );
    for (function, variant) in [("self_", "Self"), ("_2nd", "2nd"), ("__", "")] {
        let step = format!("async fn {function}() -> Outcome<Self> {{ done(()) }}");
        let message = format!(
            "the step of `{function}` would be `{variant}`, which is not a name in Rust: rename the function"
        );
        assert_eq!(mistake_in(&step, function), message);
    }
    let step = r#"#[step(rename = "a")] async fn start() -> Outcome<Self> { done(()) }"#;
    assert_eq!(
        mistake_in(step, "rename"),
        "a step has only a name to set: write #[step(name = \"...\")]"
    );
}

#[test]
fn options_are_known_and_given_once() {
    let item = format!("impl Checkout {{ {STEP} }}");
    let unknown = "unknown option of a machine: there are `steps`, `state`, `output`, `name`, `version`, `queue`, \
                   `history`, `max_deaths`, `signals(...)` and `updates(...)`";
    let twice = "this option is given twice: remove one";
    let list = "a list is expected: write its constants in parentheses, such as `signals(PAID)`";
    for (options, span, message) in [
        ("steps = At, status = u32", "status", unknown),
        ("steps = At, steps = Now", "steps = Now", twice),
        ("steps = At, signals(A), signals(B)", "signals(B)", twice),
        ("steps = At, signals = PAID", "signals", list),
    ] {
        assert_eq!(mistake(options, &item, span), message);
    }
}

#[test]
fn messages_are_declared_in_one_place() {
    let item =
        format!("impl Checkout {{ {STEP} fn messages() -> Messages {{ Messages::any() }} }}");
    assert_eq!(
        mistake("steps = At, signals(PAID)", &item, "messages()"),
        "the messages are declared twice: keep this function, or `signals(...)` and `updates(...)`"
    );
}

#[test]
fn every_mistake_is_reported_at_once() {
    let item = "impl Machine for Checkout {
        const NAME: &'static str = \"checkout\";
        fn start() -> Outcome<Self> { done(()) }
        async fn ship(self) -> Outcome<Self> { done(()) }
        fn retry(&self) {}
    }";
    assert_eq!(mistakes("step = At", item).len(), 6);
}
