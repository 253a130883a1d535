//! What the compiler says of the mistakes of a first program: the texts that say what to derive.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

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

/// What the compiler says of a program; none when it compiles.
fn said(source: &str) -> Option<String> {
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

/// Checks that a program does not compile, and that each of the texts is said.
fn says(source: &str, texts: &[&str]) {
    let said = said(source).unwrap_or_else(|| panic!("{source} compiles"));
    for text in texts {
        assert!(said.contains(text), "{text:?} is not said:\n{said}");
    }
}

#[test]
fn a_program_with_nothing_but_abide_compiles() {
    let program = include_str!("../examples/hello.rs");
    assert_eq!(said(program), None);
    // `Clone` and `Copy` may be derived beside `Step`.
    let steps = "#[derive(abide::Step, Clone, Copy, Debug, PartialEq)] pub enum At { Start }";
    assert_eq!(said(steps), None);
}

#[test]
fn a_type_that_is_not_a_message_is_told_what_to_derive() {
    let texts = [
        "`Paid` cannot be sent: it is not a message",
        "add `#[derive(abide::Message)]` to the type",
    ];
    let paid =
        "use abide::*; pub struct Paid; pub const PAID: Signal<Paid> = Signal::new(\"paid\");";
    says(
        &format!("{paid} pub fn f(abide: &Abide) {{ let _ = abide.signal(\"k\", PAID, &Paid); }}"),
        &texts,
    );
    says(
        &format!("{paid} pub fn f() {{ let _ = Messages::new().signal(PAID); }}"),
        &texts,
    );
    says(
        "use abide::*; pub struct Paid; pub const ASK: Update<Paid, ()> = Update::new(\"a\");\
         pub fn f(abide: &Abide) { let _ = abide.update(\"k\", ASK, &Paid); }",
        &texts,
    );
}

#[test]
fn what_is_not_a_machine_is_told_how_to_become_one() {
    let start = "use abide::*; pub struct Checkout; pub fn f(abide: &Abide)";
    let texts = ["#[abide::machine(steps = At)]"];
    says(
        &format!("{start} {{ let _ = abide.engine().machine(Checkout); }}"),
        &["`Checkout` is not a machine", texts[0]],
    );
    says(
        &format!("{start} {{ let _ = abide.start(Checkout, ()); }}"),
        &[
            "`Checkout` cannot be started: it is not a machine, a job or a workflow",
            texts[0],
        ],
    );
}

#[test]
fn steps_that_are_not_derived_are_told_so() {
    says(
        "use abide::*; pub enum At { Start } pub struct M; impl Machine for M { const NAME: &'static str = \"m\"; type Step = At; \
         type State = (); type Output = (); async fn step(&self, _: At, _: &mut Context<Self>) -> Outcome<Self> { done(()) } }",
        &[
            "`At` is not an enum of steps",
            "add `#[derive(abide::Step)]` to the enum",
        ],
    );
}

#[test]
fn a_message_that_cannot_be_derived_is_told_why() {
    says(
        "#[derive(abide::Message)] pub struct Paid<T> { pub amount: T }",
        &["a message cannot be generic: remove the parameters"],
    );
    // The field is what the compiler points at.
    says(
        "pub struct Euro; #[derive(abide::Message)] pub struct Paid { pub amount: Euro }",
        &["pub amount: Euro", "`Euro"],
    );
}
