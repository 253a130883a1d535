//! Help, completions and the manual: of every command.

use std::process::Command;

use crate::common;

fn run(arguments: &[&str]) -> (i32, String, String) {
    let home = common::home();
    let output = common::abide(home.path()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

/// The commands that the help lists.
fn commands(of: &[&str]) -> Vec<String> {
    let (code, help, _) = run(&[of, &["--help"]].concat());
    assert_eq!(code, 0, "{of:?}");
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| {
        line.strip_prefix("  ")?
            .split(' ')
            .next()
            .filter(|name| !name.is_empty())
    });
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_an_example_in_its_help() {
    let all = commands(&[]);
    for expected in [
        "serve",
        "start",
        "signal",
        "update",
        "publish",
        "list",
        "show",
        "watch",
        "result",
        "cancel",
        "restart",
        "repair",
        "doctor",
        "check",
        "waits",
        "events",
        "signals",
        "workers",
        "queues",
        "machines",
        "stats",
        "migrate",
        "sweep",
        "export",
        "bench",
        "completions",
        "man",
        "config",
        "token",
    ] {
        assert!(
            all.iter().any(|name| name == expected),
            "{expected} is not in {all:?}"
        );
    }
    let mut paths: Vec<Vec<&str>> = all.iter().map(|name| vec![name.as_str()]).collect();
    let of_token = commands(&["token"]);
    paths.extend(of_token.iter().map(|name| vec!["token", name.as_str()]));
    for path in paths {
        for flag in ["--help", "-h"] {
            let (code, help, _) = run(&[path.as_slice(), &[flag]].concat());
            assert_eq!(code, 0, "{path:?}");
            assert!(
                help.contains("Example") && help.contains(&format!("  abide {}", path.join(" "))),
                "{path:?}: {help}"
            );
        }
    }
}

#[test]
fn the_help_says_what_the_exit_codes_mean() {
    let (_, help, _) = run(&["--help"]);
    for line in [
        "0  done",
        "1  refused by a rule",
        "2  wrong usage",
        "3  the store cannot be reached",
    ] {
        assert!(help.contains(line), "{line}: {help}");
    }
}

#[test]
fn pairs_are_explained_where_they_are_taken() {
    for command in ["start", "signal"] {
        let (_, help, _) = run(&[command, "--help"]);
        for rule in ["amount=100", "code==007", "tags:='[1, 2]'"] {
            assert!(help.contains(rule), "{command}: {rule}");
        }
    }
}

#[test]
fn completions_are_scripts_that_shells_read() {
    let home = common::home();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, script, _) = run(&["completions", shell]);
        assert_eq!(code, 0, "{shell}");
        assert!(
            script.contains("abide") && script.contains("signal"),
            "{shell}"
        );
        let path = home.path().join(shell);
        std::fs::write(&path, script).unwrap();
        // Those that are installed say whether they can read it; bash always is.
        let reads = Command::new(shell).arg("-n").arg(&path).output();
        match reads {
            Ok(read) => assert!(read.status.success(), "{shell}: {read:?}"),
            Err(error) => assert_ne!(shell, "bash", "{error}"),
        }
    }
    assert_eq!(run(&["completions", "cobol"]).0, 2);
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let home = common::home();
    let dir = home.path().join("man1");
    let (code, out, _) = run(&["man", dir.to_str().unwrap()]);
    assert_eq!((code, out.as_str()), (0, ""));
    for command in commands(&[]) {
        let page = std::fs::read_to_string(dir.join(format!("abide-{command}.1"))).unwrap();
        assert!(
            page.contains(".SH NAME") && page.contains("Example"),
            "{command}: {page}"
        );
    }
    let (code, page, _) = run(&["man"]);
    assert_eq!(code, 0);
    assert!(
        page.contains(".SH NAME") && page.contains("abide"),
        "{page}"
    );
}
