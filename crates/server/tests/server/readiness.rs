//! `/readyz` and `/metrics` answer in time whatever the store does, and tell strangers nothing.

use std::io::Write;
use std::path::PathBuf;
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
        // The first, so that no new connection is let in.
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
    let required = async || {
        timed(&server, "/metrics", Some(&token)).await.0 == 200
            && timed(&server, "/metrics", None).await.0 == 401
    };
    server.until("the token is required", required).await;
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
        let detail = stranger.1["detail"].as_str().unwrap();
        assert!(
            !detail.contains("store") && !detail.contains("1500"),
            "{detail}"
        );
        let detail = friend.1["detail"].as_str().unwrap();
        assert!(detail.contains("the store has not answered"), "{detail}");
        let (status, body, took) = &measured;
        assert_eq!(*status, 200, "{body}");
        assert!(*took < Duration::from_secs(2), "{took:?}");
        let text = body.as_str().unwrap();
        assert!(text.contains("abide_depths_age_seconds"), "{text}");
    }
    drop(paused);
    let ready = async || timed(&server, "/readyz", Some(&token)).await.0 == 200;
    server.until("it is ready again", ready).await;
}

/// A file system of so many bytes.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mounted(bytes: usize) -> Self {
        let home = home();
        let made = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(home.path())
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "this test fills a file system of its own, which only root may mount: run it as root, or in a container that may \
             mount (CAP_SYS_ADMIN); mount printed: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        Self(home)
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Takes whatever is left.
    fn fill(&self) {
        let text = vec![b'x'; 64 << 10];
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(self.filler())
            .unwrap();
        while file.write_all(&text).is_ok() {}
        while file.write_all(b"x").is_ok() {}
    }

    /// Gives that back.
    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A text of so many bytes that is not the same anywhere, so that nothing makes it smaller.
fn noise(seed: u64, bytes: usize) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// Fills the disk of a server, which then says that it is not ready, in time, and goes on when there is room again; whatever
/// was acknowledged is there.
async fn is_not_ready_while_the_disk_is_full(server: &Server, disk: &Tiny) {
    assert_eq!(timed(server, "/readyz", None).await.0, 200);
    let until = Instant::now() + PATIENCE;
    let (mut acknowledged, mut refused) = (Vec::new(), 0);
    let start = |n: usize| json!({"machine": "m", "state": noise(n as u64, 100_000)});
    for n in 0.. {
        // What the store frees is taken again. Pages that the file has already may still be written.
        disk.fill();
        let (status, reply) = server.post("/v1/instances", &start(n)).await;
        match status {
            201 => acknowledged.push((n, reply["id"].as_i64().unwrap())),
            _ => {
                assert_eq!(status, 503, "{reply}");
                refused += 1;
            }
        }
        let (status, body, took) = timed(server, "/readyz", None).await;
        assert!(took < Duration::from_secs(2), "{took:?}");
        if status == 503 && refused > 0 {
            let detail = body["detail"].as_str().unwrap();
            assert!(
                detail.contains("full") || detail.contains("53100"),
                "an open server tells its own machine: {body}"
            );
            break;
        }
        assert!(
            Instant::now() < until,
            "it is ready after {refused} writes were refused: {body}"
        );
    }
    // It stays so while nothing changes, however often it is probed.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        disk.fill();
        let (status, body, took) = timed(server, "/readyz", None).await;
        assert_eq!(status, 503, "{body}");
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
    disk.free();
    let ready = async || timed(server, "/readyz", None).await.0 == 200;
    server.until("it is ready with room again", ready).await;
    let (status, reply) = server.post("/v1/instances", &start(usize::MAX)).await;
    assert_eq!(status, 201, "{reply}");
    for (n, id) in acknowledged {
        let (status, reply) = server.get(&format!("/v1/instances/{id}")).await;
        assert_eq!(status, 200, "it was acknowledged: {reply}");
        assert_eq!(reply["state"], start(n)["state"], "{id}");
    }
}

#[tokio::test]
async fn a_server_whose_disk_is_full_is_not_ready() {
    let disk = Tiny::mounted(8 << 20);
    let url = format!("sqlite:{}", disk.0.path().join("abide.db").display());
    let server = server().over(Over::Url(url)).start();
    is_not_ready_while_the_disk_is_full(&server, &disk).await;
}

#[tokio::test]
async fn a_server_whose_postgresql_has_a_full_disk_is_not_ready() {
    // The probe wrote over the same small row, for which PostgreSQL had a page: the server said that it was ready while
    // every start was refused.
    let cluster = abide_pgtest::Server::private(&[]);
    let disk = Tiny::mounted(64 << 20);
    let folder = disk.0.path().join("data");
    std::fs::create_dir(&folder).unwrap();
    // PostgreSQL runs as another user than root.
    let data = psql(&cluster.url("postgres"), "show data_directory");
    for path in [disk.0.path(), &folder] {
        let owned = Command::new("chown")
            .args(["--reference", &data])
            .arg(path)
            .status();
        assert!(owned.unwrap().success());
    }
    let folder = folder.display();
    let tablespace = format!("create tablespace tiny location '{folder}'");
    psql(&cluster.url("postgres"), &tablespace);
    psql(
        &cluster.url("postgres"),
        "create database work tablespace tiny",
    );
    let server = server().over(Over::Url(cluster.url("work"))).start();
    is_not_ready_while_the_disk_is_full(&server, &disk).await;
}
