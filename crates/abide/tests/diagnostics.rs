//! The errors of the compiler for the mistakes of a first program: their texts name what to derive.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library as the tests were linked with it: the newest that was built.
fn library(built: &Path) -> PathBuf {
    let files = std::fs::read_dir(built).unwrap().map(|file| file.unwrap());
    let is_library = |name: &str| name.starts_with("libabide-") && name.ends_with(".rlib");
    let libraries = files.filter(|file| is_library(&file.file_name().to_string_lossy()));
    let newest = libraries.max_by_key(|file| file.metadata().unwrap().modified().unwrap());
    newest.unwrap().path()
}

/// The errors of the compiler for a program; `None` if it compiles.
fn errors_of(source: &str) -> Option<String> {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap();
    let out = tempfile::tempdir().unwrap();
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let mut compiler = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata"])
        .arg("-L")
        .arg(format!("dependency={}", built.display()))
        .arg("--extern")
        .arg(format!("abide={}", library(built).display()))
        .arg("--out-dir")
        .arg(out.path())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = compiler.stdin.take().unwrap();
    input.write_all(source.as_bytes()).unwrap();
    drop(input);
    let output = compiler.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    (!output.status.success()).then_some(text)
}

/// Asserts that a program does not compile, and that each of the texts is in the errors.
fn assert_errors(source: &str, texts: &[&str]) {
    let errors = errors_of(source).unwrap_or_else(|| panic!("{source} compiles"));
    for text in texts {
        assert!(errors.contains(text), "{text:?} is not in:\n{errors}");
    }
}

#[test]
fn a_program_with_nothing_but_abide_compiles() {
    let program = include_str!("../examples/hello.rs");
    assert_eq!(errors_of(program), None);
    // `Clone` and `Copy` may be derived beside `Step`.
    let steps = "#[derive(abide::Step, Clone, Copy, Debug, PartialEq)] pub enum At { Start }";
    assert_eq!(errors_of(steps), None);
}

#[test]
fn the_error_for_a_type_that_is_not_a_message_names_the_derive() {
    let texts = [
        "`Paid` cannot be sent: it is not a message",
        "add `#[derive(abide::Message)]` to the type",
    ];
    let paid = "use abide::prelude::*; pub struct Paid; pub const PAID: Signal<Paid> = Signal::new(\"paid\");";
    assert_errors(
        &format!("{paid} pub fn f(abide: &Abide) {{ let _ = abide.signal(\"k\", PAID, &Paid); }}"),
        &texts,
    );
    assert_errors(
        &format!("{paid} pub fn f() {{ let _ = abide::machine::Messages::new().signal(PAID); }}"),
        &texts,
    );
    assert_errors(
        "use abide::prelude::*; pub struct Paid; pub const ASK: Update<Paid, ()> = Update::new(\"a\");\
         pub fn f(abide: &Abide) { let _ = abide.update(\"k\", ASK, &Paid); }",
        &texts,
    );
}

#[test]
fn the_error_for_a_type_that_is_not_a_machine_shows_how_to_make_it_one() {
    let start = "use abide::prelude::*; pub struct Checkout; pub fn f(abide: &Abide)";
    let texts = ["#[abide::machine(steps = At)]"];
    assert_errors(
        &format!("{start} {{ let _ = abide.engine().machine(Checkout); }}"),
        &["`Checkout` is not a machine", texts[0]],
    );
    assert_errors(
        &format!("{start} {{ let _ = abide.start(Checkout, ()); }}"),
        &["`Checkout` is not a machine, a job or a workflow", texts[0]],
    );
}

#[test]
fn the_error_for_steps_that_are_not_derived_names_the_derive() {
    assert_errors(
        "use abide::prelude::*; pub enum At { Start } pub struct M; impl Machine for M { const NAME: &'static str = \"m\"; type Step = At; \
         type State = (); type Output = (); async fn step(&self, _: At, _: &mut Context<Self>) -> Outcome<Self> { done(()) } }",
        &[
            "`At` is not an enum of steps",
            "add `#[derive(abide::Step)]` to the enum",
        ],
    );
}

#[test]
fn the_error_for_a_message_that_cannot_be_derived_gives_the_reason() {
    assert_errors(
        "#[derive(abide::Message)] pub struct Paid<T> { pub amount: T }",
        &["a message cannot be generic: remove the parameters"],
    );
    // The field is what the compiler points at.
    assert_errors(
        "pub struct Euro; #[derive(abide::Message)] pub struct Paid { pub amount: Euro }",
        &["pub amount: Euro", "`Euro"],
    );
}
