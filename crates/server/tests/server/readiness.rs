//! `/readyz` and `/metrics` answer in time whatever the store does, and tell strangers nothing.

use std::process::Command;
use std::time::{Duration, Instant};

use abide_pgtest::psql;
use serde_json::{Value, json};

use crate::common::{Over, PATIENCE, Server, answer, home, server};

/// Asks, and says how long that took.
async fn timed(server: &Server, path: &str, token: Option<&str>) -> (u16, Value, Duration) {
    let began = Instant::now();
    let mut request = server.http.get(server.at(path));
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let (status, body) = answer(request).await;
    (status, body, began.elapsed())
}

fn signal(name: &str, pids: &[String]) {
    let sent = Command::new("kill")
        .arg(format!("-{name}"))
        .args(pids)
        .status();
    assert!(sent.unwrap().success());
}

/// A PostgreSQL of which every process stands still until this is dropped.
struct Paused(Vec<String>);

impl Paused {
    fn of(cluster: &abide_pgtest::Server, url: &str) -> Self {
        let listed = psql(
            url,
            "select pid from pg_stat_activity where pid <> pg_backend_pid()",
        );
        let mut pids: Vec<String> = listed.lines().map(str::to_owned).collect();
        // The first, so that nobody new is let in.
        pids.insert(0, cluster.pid().unwrap().to_string());
        signal("STOP", &pids);
        Self(pids)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        signal("CONT", &self.0);
    }
}

#[tokio::test]
async fn a_server_whose_database_is_paused_says_so_in_time_and_is_still_measured() {
    let cluster = abide_pgtest::Server::private(&[]);
    let url = cluster.fresh_database();
    let server = server().over(Over::Url(url.clone())).start();
    let token = server.token("read");
    // The token is known from the first request on that comes with it.
    let until = Instant::now() + PATIENCE;
    while timed(&server, "/metrics", Some(&token)).await.0 != 200
        || timed(&server, "/metrics", None).await.0 != 401
    {
        assert!(Instant::now() < until, "the token is never asked for");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (status, body, _) = timed(&server, "/readyz", None).await;
    assert_eq!(status, 200, "{body}");
    let paused = Paused::of(&cluster, &url);
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for _ in 0..3 {
        let (stranger, friend, measured) = tokio::join!(
            timed(&server, "/readyz", None),
            timed(&server, "/readyz", Some(&token)),
            timed(&server, "/metrics", Some(&token)),
        );
        for (status, body, took) in [&stranger, &friend] {
            assert_eq!(*status, 503, "{body}");
            assert!(*took < Duration::from_secs(2), "{took:?}");
        }
        let said = stranger.1["detail"].as_str().unwrap();
        assert!(!said.contains("store") && !said.contains("1500"), "{said}");
        let said = friend.1["detail"].as_str().unwrap();
        assert!(said.contains("the store has not answered"), "{said}");
        let (status, body, took) = &measured;
        assert_eq!(*status, 200, "{body}");
        assert!(*took < Duration::from_secs(2), "{took:?}");
        let text = body.as_str().unwrap();
        assert!(text.contains("abide_depths_age_seconds"), "{text}");
    }
    drop(paused);
    let until = Instant::now() + PATIENCE;
    loop {
        let (status, body, _) = timed(&server, "/readyz", Some(&token)).await;
        if status == 200 {
            break;
        }
        assert!(Instant::now() < until, "{body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A file system of so many bytes, if this process may make one.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mounted(bytes: usize) -> Option<Self> {
        let home = home();
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(home.path())
            .status();
        made.is_ok_and(|made| made.success()).then(|| Self(home))
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_server_whose_disk_is_full_is_not_ready() {
    let Some(disk) = Tiny::mounted(8 << 20) else {
        println!("skipped: this process may not mount a file system");
        return;
    };
    let url = format!("sqlite:{}", disk.0.path().join("abide.db").display());
    let server = server().over(Over::Url(url)).start();
    assert_eq!(timed(&server, "/readyz", None).await.0, 200);
    let filler = disk.0.path().join("filler");
    // Whatever is left is taken, and what the store frees is taken again.
    let fill = || {
        let text = vec![b'x'; 64 << 10];
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&filler)
            .unwrap();
        while std::io::Write::write_all(&mut file, &text).is_ok() {}
        while std::io::Write::write_all(&mut file, b"x").is_ok() {}
    };
    let until = Instant::now() + PATIENCE;
    let mut n = 0;
    loop {
        fill();
        // Pages that the file has already may still be written.
        n += 1;
        let start = json!({"machine": "m", "state": "x".repeat(100_000)});
        let (_, _) = server.post("/v1/instances", &start).await;
        let (status, body, took) = timed(&server, "/readyz", None).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
        if status == 503 {
            assert!(
                body["detail"].as_str().unwrap().contains("full"),
                "an open server tells its own machine: {body}"
            );
            break;
        }
        assert!(
            Instant::now() < until,
            "it is ready after {n} rounds: {body}"
        );
    }
    std::fs::remove_file(&filler).unwrap();
    let until = Instant::now() + PATIENCE;
    while timed(&server, "/readyz", None).await.0 != 200 {
        assert!(
            Instant::now() < until,
            "there is room again\n{}",
            server.log()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
