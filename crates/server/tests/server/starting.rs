//! It starts, quickly, and says where it is.

use std::time::{Duration, Instant};

use crate::common::{Over, first_line, home, postgres, server};

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
    let line = first_line(command.args(["serve", "--listen", "127.0.0.1:0"]));
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
fn a_problem_at_start_is_printed_and_has_its_exit_code() {
    let home = home();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let store = format!("sqlite:{}", home.path().join("a.db").display());
    for (listen, store, code, expected) in [
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
            .args(["--wait", "100ms"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{listen} {store}: {stderr}"
        );
        assert!(
            stderr.contains(expected) && stderr.contains("try: "),
            "{listen} {store}: {stderr}"
        );
    }
}

/// A pod or a unit that starts beside its database ended at once, because the database was not up yet.
#[tokio::test]
async fn it_waits_for_a_database_that_is_not_up_yet() {
    let database = abide_pgtest::Server::private(&[]);
    let url = database.fresh_database();
    database.stop();
    let home = home();
    let log = home.path().join("log");
    let starting = std::thread::spawn(move || server().home(home).over(Over::Url(url)).start());
    let waits = || {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.contains("waiting for the store")
    };
    // The database starts only when the server has found nothing there.
    while !starting.is_finished() && !waits() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    database.start();
    let server = starting.join().unwrap();
    assert_eq!(server.get("/readyz").await.0, 200);
    assert!(waits(), "{}", server.log());
}

/// The wait of a minute was a setting without a flag.
#[test]
fn the_wait_for_a_database_is_a_flag() {
    let home = home();
    let began = Instant::now();
    let output = crate::common::abide(home.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--wait", "0"])
        .args(["--store", "postgres://abide@127.0.0.1:1/abide"])
        .env("ABIDE_STORE_WAIT_MS", "600000")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(!stderr.contains("waiting for the store"), "{stderr}");
    assert!(began.elapsed() < Duration::from_secs(30), "{stderr}");
    for wrong in ["60", "a while", "2d"] {
        let output = crate::common::abide(home.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--wait", wrong])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{wrong}: {stderr}");
    }
}

#[test]
fn a_missing_database_is_an_error_at_once_that_says_how_to_create_it() {
    let Over::Url(url) = postgres() else {
        unreachable!("PostgreSQL has a url")
    };
    let (server, _) = url.rsplit_once('/').unwrap();
    let home = home();
    let began = Instant::now();
    let output = crate::common::abide(home.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--store"])
        .arg(format!("{server}/absent"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.contains("createdb") && stderr.contains("absent"),
        "{stderr}"
    );
    assert!(!stderr.contains("broken"), "{stderr}");
    assert!(began.elapsed() < Duration::from_secs(30), "{stderr}");
}

#[test]
fn a_missing_role_or_permission_is_an_error_at_once_that_says_how_to_grant_it() {
    let database = abide_pgtest::Server::private(&[]);
    let url = database.fresh_database();
    abide_pgtest::psql(&url, "create role poor login");
    let (_, host) = url.rsplit_once('@').unwrap();
    let home = home();
    let began = Instant::now();
    for (role, command) in [
        ("absent", "createuser"),
        ("poor", "grant create on database"),
    ] {
        let output = crate::common::abide(home.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("postgres://{role}@{host}"))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{role}: {stderr}");
        assert!(stderr.contains(command), "{role}: {stderr}");
        assert!(!stderr.contains("broken"), "{role}: {stderr}");
    }
    assert!(began.elapsed() < Duration::from_secs(40), "it waited");
}

#[test]
fn a_request_to_stop_ends_the_wait_for_a_database() {
    let home = home();
    let log = home.path().join("log");
    let mut child = crate::common::abide(home.path())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(["--store", "postgres://abide@127.0.0.1:1/abide"])
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("waiting for the store")
    {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(sent.unwrap().success());
    // It ends by itself, with the exit code of a store that cannot be reached, and not by the signal.
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(began.elapsed() < Duration::from_secs(50), "it waited on");
}
