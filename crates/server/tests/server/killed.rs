//! A server that is killed in the middle of its work: what it was advancing goes on soon, wherever that may be.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Over, PATIENCE, Server, postgres, server};

/// Time limit until work goes on when the server is started again.
const RESTARTED: Duration = Duration::from_secs(6);
/// Time limit until work goes on at another server.
const ELSEWHERE: Duration = Duration::from_secs(15);

/// Starts runs that the server itself has much to do with.
async fn start_runs(server: &Server, count: usize) {
    let mut steps = vec![json!({"name": "s0", "sleep": {"duration_ms": 1}})];
    for at in 1..8 {
        let after = format!("s{}", at - 1);
        steps
            .push(json!({"name": format!("s{at}"), "after": [after], "sleep": {"duration_ms": 1}}));
    }
    let (status, put) = server
        .put("/v1/graphs/busy", &json!({"steps": steps}))
        .await;
    assert_eq!(status, 200, "{put}");
    let starts = vec![json!({"graph": "busy", "input": null}); count];
    let (status, started) = server
        .post("/v1/instances/batch", &json!({ "instances": starts }))
        .await;
    assert_eq!(status, 200, "{started}");
}

/// The instances with that status, as the store itself has them.
fn with_status(server: &Server, status: &str) -> BTreeSet<i64> {
    let listed = server.cli(&["list", "--status", status, "--all", "--json"]);
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let items = listed["items"].as_array().unwrap();
    items
        .iter()
        .map(|one| one["id"].as_i64().unwrap())
        .collect()
}

/// Kills a server that holds runs: until it does, it is given more.
async fn kill_at_work(setup: impl Fn() -> crate::common::Setup) -> (Server, BTreeSet<i64>) {
    for _ in 0..20 {
        let mut server = setup().start();
        start_runs(&server, 200).await;
        server.signal("KILL");
        assert_eq!(server.wait(), None, "{}", server.log());
        let held = with_status(&server, "executing");
        if !held.is_empty() {
            return (server, held);
        }
    }
    panic!("the server was never killed while it held anything");
}

/// Measures how long it takes until all of these go on: until they have been taken from the server that was killed. It
/// then waits for their end.
async fn until_going_on(server: &Server, held: &BTreeSet<i64>, since: Instant) -> Duration {
    let history = async |id: &i64| {
        let (status, history) = server.get(&format!("/v1/instances/{id}/history")).await;
        assert_eq!(status, 200, "{history}");
        history.to_string()
    };
    for id in held {
        while !history(id).await.contains("\"reclaimed\"") {
            assert!(since.elapsed() < PATIENCE, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let took = since.elapsed();
    for id in held {
        while !history(id).await.contains("\"done\"") {
            assert!(since.elapsed() < 2 * PATIENCE, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    took
}

#[tokio::test]
async fn a_server_started_again_takes_back_at_once_what_it_held() {
    // rule 5.3: the server had another name at each start, and the runs it was advancing waited for its old lease.
    for over in [None, Some(postgres())] {
        let url = over.map(|over| match over {
            Over::Url(url) => url,
            Over::Sqlite => unreachable!("that one has no url"),
        });
        let home = std::cell::RefCell::new(Some(crate::common::home()));
        let setup = || {
            let setup = server().set("name", "one");
            match (&url, home.borrow_mut().take()) {
                (Some(url), _) => setup.over(Over::Url(url.clone())),
                (None, Some(home)) => setup.home(home),
                (None, None) => setup,
            }
        };
        let (killed, held) = kill_at_work(setup).await;
        let store = killed.store.clone();
        let since = Instant::now();
        let again = server().set("name", "one").over(Over::Url(store)).start();
        let took = until_going_on(&again, &held, since).await;
        eprintln!("taken back after {took:?}: {} runs", held.len());
        assert!(
            took < RESTARTED,
            "{took:?} for {}\n{}",
            held.len(),
            again.log()
        );
        drop(killed);
    }
}

#[tokio::test]
async fn another_server_takes_over_what_a_killed_one_held() {
    // rule 5.3
    let Over::Url(url) = postgres() else {
        unreachable!("PostgreSQL has a url")
    };
    let (killed, held) = kill_at_work(|| server().over(Over::Url(url.clone()))).await;
    let since = Instant::now();
    let other = server().over(Over::Url(url.clone())).start();
    let took = until_going_on(&other, &held, since).await;
    eprintln!("taken over after {took:?}: {} runs", held.len());
    assert!(
        took < ELSEWHERE,
        "{took:?} for {}\n{}",
        held.len(),
        other.log()
    );
    drop(killed);
}

#[tokio::test]
async fn a_stopped_server_whose_name_was_taken_goes_on_under_another() {
    // rule 5.3: two that live under one name are distinguished, and do not take from each other for ever.
    let Over::Url(url) = postgres() else {
        unreachable!("PostgreSQL has a url")
    };
    let setup = || server().set("name", "twin").over(Over::Url(url.clone()));
    let first = setup().start();
    start_runs(&first, 50).await;
    first.signal("STOP");
    let second = setup().start();
    let names = async || {
        let (_, workers) = second.get("/v1/workers").await;
        let items = workers["items"].as_array().unwrap().clone();
        let name = |one: &Value| one["name"].as_str().unwrap().to_owned();
        items.iter().map(name).collect::<Vec<String>>()
    };
    assert_eq!(names().await, ["twin"]);
    first.signal("CONT");
    let are_two = async || names().await.len() == 2;
    first.until("both are known", are_two).await;
    let both = names().await;
    assert!(
        both.iter().any(|name| name == "twin") && both.iter().any(|name| name.starts_with("twin~")),
        "{both:?}"
    );
    start_runs(&first, 50).await;
    start_runs(&second, 50).await;
    let since = Instant::now();
    while with_status(&second, "done").len() < 150 {
        assert!(
            since.elapsed() < PATIENCE,
            "{}\n{}",
            first.log(),
            second.log()
        );
    }
    assert_eq!(names().await, both, "neither took the other's name again");
}
