//! It starts, quickly, and says where it is.

use std::time::{Duration, Instant};

use crate::common::{home, server};

#[tokio::test]
async fn it_is_ready_in_well_under_a_second() {
    let began = Instant::now();
    let server = server().start();
    let (status, body) = server.get("/readyz").await;
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((status, body["status"].as_str()), (200, Some("ok")));
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn without_a_store_it_makes_one_in_the_data_directory() {
    let home = home();
    let mut command = crate::common::abide(home.path());
    let mut child = command
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut line,
    )
    .unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let file = home.path().join("data/abide/abide.db");
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    assert!(
        line.trim_end()
            .ends_with(&format!("store sqlite:{}", file.display())),
        "{line}"
    );
    assert!(file.exists());
}

#[test]
fn what_keeps_it_from_starting_is_said_with_the_exit_code_for_it() {
    let home = home();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let store = format!("sqlite:{}", home.path().join("a.db").display());
    for (listen, store, code, told) in [
        ("nonsense", store.as_str(), 2, "HOST:PORT"),
        (taken.as_str(), store.as_str(), 3, "cannot listen"),
        (
            "127.0.0.1:0",
            "postgres://abide@127.0.0.1:1/abide",
            3,
            "cannot be reached",
        ),
        ("127.0.0.1:0", "sqlite:/absent/a.db", 3, "/absent/a.db"),
        ("127.0.0.1:0", "mysql://x", 2, "no such store"),
    ] {
        let output = crate::common::abide(home.path())
            .args(["serve", "--listen", listen, "--store", store])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{listen} {store}: {said}");
        assert!(
            said.contains(told) && said.contains("try: "),
            "{listen} {store}: {said}"
        );
    }
}
