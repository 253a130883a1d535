//! A server of our own: it starts, gives databases away, goes and comes back.

use abide_pgtest::{Server, psql, server};

#[test]
fn fresh_databases_are_distinct_and_empty() {
    let urls: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server().fresh_database()))
            .collect();
        makers
            .into_iter()
            .map(|maker| maker.join().unwrap())
            .collect()
    });
    for (at, url) in urls.iter().enumerate() {
        assert!(!urls[..at].contains(url));
        psql(url, "create table kept (value int)");
        psql(url, &format!("insert into kept values ({at})"));
    }
    for (at, url) in urls.iter().enumerate() {
        assert_eq!(psql(url, "select value from kept"), at.to_string());
    }
}

#[test]
fn a_server_is_durable_unless_configured_otherwise() {
    let server = Server::private(&[("shared_buffers", "16MB"), ("application_name", "it's")]);
    let url = server.url("postgres");
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("listen_addresses", "127.0.0.1"),
        ("max_connections", "300"),
        ("max_wal_size", "2GB"),
        ("shared_buffers", "16MB"),
    ] {
        assert_eq!(
            psql(&url, &format!("show {setting}")),
            value,
            "of {setting}"
        );
    }
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_after_a_crash() {
    let server = Server::private(&[]);
    let url = server.fresh_database();
    psql(&url, "create table kept as select 1 as value");
    server.restart();
    assert_eq!(psql(&url, "select value from kept"), "1");
    psql(&url, "update kept set value = 2");
    server.crash();
    server.start();
    assert_eq!(psql(&url, "select value from kept"), "2");
}

#[test]
fn a_stopped_server_refuses_connections_until_it_is_started() {
    let server = Server::private(&[]);
    let url = server.url("postgres");
    assert!(server.pid().is_some());
    server.stop();
    assert_eq!(server.pid(), None);
    let refused = std::panic::catch_unwind(|| psql(&url, "select 1")).unwrap_err();
    assert!(
        refused
            .downcast_ref::<String>()
            .unwrap()
            .contains("refused")
    );
    server.start();
    assert_eq!(psql(&url, "select 1"), "1");
}

#[test]
fn a_server_that_was_killed_can_be_started_again() {
    let server = Server::private(&[]);
    let url = server.fresh_database();
    psql(&url, "create table kept as select 1 as value");
    let pid = server.pid().unwrap().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-9", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    server.restart();
    assert_ne!(server.pid().unwrap().to_string(), pid);
    assert_eq!(psql(&url, "select value from kept"), "1");
}

#[test]
#[should_panic(expected = "unrecognized configuration parameter")]
fn a_setting_that_does_not_exist_is_reported_with_the_log() {
    Server::private(&[("no_such_setting", "1")]);
}

#[test]
#[should_panic(expected = "take `Server::private`")]
fn the_server_of_all_tests_cannot_be_stopped() {
    server().stop();
}
