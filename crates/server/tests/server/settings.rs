//! Settings and their sources: `abide config`.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::{abide, home};

fn config(home: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    abide(home)
        .arg("config")
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn shown(output: &Output, key: &str) -> (String, String) {
    assert!(output.status.success(), "{output:?}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |field: &str| all[key][field].as_str().unwrap().to_owned();
    (text("value"), text("source"))
}

#[test]
fn it_prints_what_is_in_force_and_where_it_came_from() {
    let home = home();
    let file = home.path().join("config/abide/abide.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(
        &file,
        "retention = 30\nlisten = \"127.0.0.1:1\"\n[limits]\nstate_bytes = 5000\n",
    )
    .unwrap();
    let output = config(
        home.path(),
        &["--json", "--set", "connections=7"],
        &[("ABIDE_LISTEN", "127.0.0.1:2")],
    );
    let from_file = format!("file {}", file.display());
    assert_eq!(
        shown(&output, "retention"),
        ("30".to_owned(), from_file.clone())
    );
    assert_eq!(
        shown(&output, "limits.state_bytes"),
        ("5000".to_owned(), from_file)
    );
    assert_eq!(
        shown(&output, "listen"),
        (
            "127.0.0.1:2".to_owned(),
            "environment ABIDE_LISTEN".to_owned()
        )
    );
    assert_eq!(
        shown(&output, "connections"),
        ("7".to_owned(), "flag --set".to_owned())
    );
    assert_eq!(
        shown(&output, "in_flight"),
        ("1024".to_owned(), "default".to_owned())
    );

    // A file that is named takes the place of the user's own.
    let other = home.path().join("other.toml");
    std::fs::write(&other, "retention = \"forever\"").unwrap();
    let named = config(
        home.path(),
        &["--json", "--config", other.to_str().unwrap()],
        &[],
    );
    assert_eq!(shown(&named, "retention").0, "forever");
    assert_eq!(shown(&named, "listen").1, "default");
    let named = config(
        home.path(),
        &["--json"],
        &[("ABIDE_CONFIG", other.to_str().unwrap())],
    );
    assert_eq!(shown(&named, "retention").0, "forever");
}

#[test]
fn a_password_and_a_secret_are_never_printed() {
    let home = home();
    let file = home.path().join("abide.toml");
    let hooks = "[[hooks]]\nsource = \"shop\"\nscheme = \"stripe\"\nsecret = \"hunter2\"\nevent = \"paid\"\n";
    std::fs::write(
        &file,
        format!("store = \"postgres://me:hunter2@db/x\"\n{hooks}"),
    )
    .unwrap();
    for arguments in [vec!["--json"], vec![]] {
        let arguments: Vec<&str> = arguments
            .into_iter()
            .chain(["--config", file.to_str().unwrap()])
            .collect();
        let output = config(home.path(), &arguments, &[("ABIDE_TOKEN", "hunter2")]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && text.contains("shop (stripe)"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn an_unknown_key_is_wrong_usage_for_every_command() {
    let home = home();
    let file = home.path().join("abide.toml");
    std::fs::write(&file, "listn = \"x\"").unwrap();
    for command in [vec!["config"], vec!["serve"], vec!["token", "list"]] {
        let output = abide(home.path())
            .args(&command)
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(
            stderr.contains("\"listn\"") && stderr.contains("listen"),
            "{stderr}"
        );
        let output = abide(home.path())
            .args(&command)
            .env("ABIDE_STOER", "x")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command:?}: {stderr}");
        assert!(
            stderr.contains("ABIDE_STOER") && stderr.contains("ABIDE_STORE"),
            "{stderr}"
        );
    }
}
