//! Errors when the server is not there, is another, or loses an answer; and that nothing is lost by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Server, guarded, routes};
use abide_core::model::{Json, Name, Refusal, Start};
use abide_kernel::memory::Memory;
use abide_kernel::wire;
use abide_kernel::{Answer, Error, Filter, Op, Store};
use abide_remote::{Options, Remote};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn start(count: usize) -> Arc<[Op]> {
    let one = Start::of(Name::new("m").unwrap(), Json::null());
    Arc::from([Op::Start(vec![one; count])])
}

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::default())
}

async fn count(store: &dyn Store) -> usize {
    let page = store.list(&Filter::default(), None, 1_000).await.unwrap();
    page.items.len()
}

async fn connect(url: &str) -> Result<Arc<Remote>, Error> {
    Remote::connect(url, Options::default()).await
}

/// One that returns an unknown outcome at once.
async fn impatient(url: &str) -> Arc<Remote> {
    let options = Options {
        patience: Duration::ZERO,
        ..Options::default()
    };
    Remote::connect(url, options).await.unwrap()
}

/// An address that does not listen.
async fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

async fn eventually<T, E: std::fmt::Debug>(what: impl AsyncFn() -> Result<T, E>) -> T {
    let trying = async {
        loop {
            match what().await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    let tried = tokio::time::timeout(Duration::from_secs(20), trying).await;
    tried.expect("it did not come to pass within 20 s")
}

#[tokio::test]
async fn a_server_that_is_not_there_cannot_be_reached_and_the_error_names_it() {
    let url = unused_address().await;
    let error = connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains(&url), "{error}");
}

#[tokio::test]
async fn what_was_not_sent_was_not_written_and_goes_on_when_the_server_is_back() {
    let store = memory();
    let server = Server::of(store.clone()).await;
    let address = server.address;
    let remote = impatient(&server.url()).await;
    remote.run(start(1)).await.unwrap();
    let mut listener = remote.listen();
    drop(server);
    // The connection that was open is cut some time; after that the server does not answer at all.
    eventually(async || match remote.run(start(1)).await {
        Err(Error::Unavailable(_)) => Ok(()),
        other => Err(other),
    })
    .await;
    let before = count(&*store).await;
    let error = remote.run(start(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let read = remote.next_due().await.unwrap_err();
    assert!(matches!(read, Error::Unavailable(_)), "{read:?}");
    assert_eq!(count(&*store).await, before);

    let _again = Server::with(routes(store.clone()), address).await;
    remote.run(start(1)).await.unwrap();
    assert_eq!(count(&*store).await, before + 1);
    // Notifications of what happened meanwhile were lost, and listeners are notified of that.
    let notified = async {
        while let Some(effects) = listener.next().await {
            if effects.anything {
                return true;
            }
        }
        false
    };
    assert!(
        tokio::time::timeout(Duration::from_secs(20), notified)
            .await
            .unwrap()
    );
    // And notifications go on.
    let mut listener = remote.listen();
    store.run(start(1)).await.unwrap();
    let notified = tokio::time::timeout(Duration::from_secs(20), listener.next());
    assert!(notified.await.unwrap().is_some());
}

/// Passes requests on to a server, and cuts the connection before an answer to one with that text in it comes back.
async fn cutting(server: &Server, text: &'static str, times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (to, left) = (server.address, Arc::new(AtomicUsize::new(times)));
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let left = left.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.unwrap();
                let (mut here, mut there) = (vec![0; 1 << 16], vec![0; 1 << 16]);
                let (mut cut, mut seen) = (false, Vec::new());
                loop {
                    tokio::select! {
                        read = client.read(&mut here) => {
                            let Ok(1..) = read else { return };
                            let data = &here[..read.unwrap()];
                            seen.extend_from_slice(data);
                            let wanted = String::from_utf8_lossy(&seen).contains(text);
                            cut = wanted && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
                            if server.write_all(data).await.is_err() { return }
                        }
                        read = server.read(&mut there) => {
                            let Ok(1..) = read else { return };
                            if cut { return }
                            if client.write_all(&there[..read.unwrap()]).await.is_err() { return }
                        }
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn whether_a_write_was_done_whose_answer_is_lost_is_unknown() {
    let store = memory();
    let server = Server::of(store.clone()).await;
    let url = cutting(&server, "{\"start\":", 1).await;
    let remote = impatient(&url).await;
    let mut listener = remote.listen();
    let error = remote.run(start(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert_eq!(count(&*store).await, 1, "it was done");
    let notified = tokio::time::timeout(Duration::from_secs(20), listener.next());
    assert!(notified.await.unwrap().is_some());
    remote.run(start(1)).await.unwrap();
    assert_eq!(count(&*store).await, 2);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_is_sent_again_and_done_once() {
    // rule 1.5
    let store = memory();
    let server = Server::of(store.clone()).await;
    let url = cutting(&server, "{\"start\":", 3).await;
    let remote = connect(&url).await.unwrap();
    let answers = remote.run(start(2)).await.unwrap();
    assert!(matches!(answers.as_slice(), [Answer::Started(each)] if each.len() == 2));
    assert_eq!(count(&*store).await, 2);
    remote.run(start(1)).await.unwrap();
    assert_eq!(count(&*store).await, 3, "the next call is another one");
}

#[tokio::test]
async fn only_a_server_can_say_that_nothing_was_written() {
    // rule 1.5: what a proxy answers to a write leaves it open, whatever the status; of a read it does not matter.
    const OURS: &str = r#"{"type":"/problems/unavailable","detail":"it is full"}"#;
    const OTHER: &str = r#"{"type":"/problems/unknown","detail":"who knows"}"#;
    let notifications = || async { [(header::CONTENT_TYPE, "text/event-stream")].into_response() };
    let clock = memory().clock();
    for (status, body, unknown) in [
        (503, OURS, false),
        (429, OURS, false),
        (503, OTHER, true),
        (503, "busy", true),
        (503, "", true),
        (500, "<h1>oops</h1>", true),
        (502, "<h1>bad gateway</h1>", true),
        (504, "", true),
        (429, "slow down", true),
        (408, "", true),
        (200, "<h1>welcome</h1>", true),
        (302, "", true),
        (404, "<h1>no such page</h1>", true),
        (418, "", true),
    ] {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = move || async move { (status, [(header::RETRY_AFTER, "7")], body) };
        let routes = Router::new()
            .route(wire::PATH, post(answer))
            .route(wire::NOTIFICATIONS, get(notifications));
        let server = Server::with(routes, "127.0.0.1:0".parse().unwrap()).await;
        let options = Options {
            patience: Duration::ZERO,
            clock: Some(clock.clone()),
            ..Options::default()
        };
        let remote = Remote::connect(&server.url(), options).await.unwrap();
        let error = remote.run(start(1)).await.unwrap_err();
        match unknown {
            true => assert!(
                matches!(error, Error::Unknown(_)),
                "{status} {body}: {error:?}"
            ),
            false => assert!(
                matches!(error, Error::Unavailable(_)),
                "{status} {body}: {error:?}"
            ),
        }
        let read = remote.next_due().await.unwrap_err();
        assert!(
            !matches!(read, Error::Unknown(_)),
            "{status} {body}: {read:?}"
        );
    }
}

#[tokio::test]
async fn a_try_that_could_not_be_sent_does_not_make_the_one_before_it_known() {
    // rule 1.5: an unknown outcome was once reported as "nothing was written" when the server went away after it.
    let store = memory();
    let server = Server::of(store.clone()).await;
    let url = cutting(&server, "{\"start\":", 1).await;
    let options = Options {
        patience: Duration::from_millis(300),
        ..Options::default()
    };
    let remote = Remote::connect(&url, options).await.unwrap();
    let running = remote.clone();
    let running = tokio::spawn(async move { running.run(start(1)).await });
    eventually(async || match count(&*store).await {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
    drop(server);
    let error = running.await.unwrap();
    // The second try may have come through before the server was gone.
    if let Err(error) = error {
        assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    }
    assert_eq!(count(&*store).await, 1);
}

#[tokio::test]
async fn a_read_whose_answer_is_lost_may_be_tried_again() {
    let server = Server::of(memory()).await;
    let url = cutting(&server, "\"depths\"", 1).await;
    let remote = connect(&url).await.unwrap();
    let error = remote.depths().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(remote.depths().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_not_waited_for() {
    let store = memory();
    let silent = Router::new()
        .route(wire::PATH, post(std::future::pending::<StatusCode>))
        .route(
            wire::NOTIFICATIONS,
            get(|| async { [(header::CONTENT_TYPE, "text/event-stream")].into_response() }),
        );
    let server = Server::with(silent, "127.0.0.1:0".parse().unwrap()).await;
    let options = Options {
        timeout: Duration::from_millis(100),
        patience: Duration::ZERO,
        clock: Some(store.clock()),
        ..Options::default()
    };
    let remote = Remote::connect(&server.url(), options).await.unwrap();
    let error = remote.run(start(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    let error = remote.next_due().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("100ms"), "{error}");
}

#[tokio::test]
async fn a_token_that_is_missing_wrong_or_weak_is_refused_with_what_to_do() {
    let server = Server::with(guarded(memory(), "s3cret"), "127.0.0.1:0".parse().unwrap()).await;
    let connect = async |token: Option<&str>| {
        let options = Options {
            token: token.map(str::to_owned),
            ..Options::default()
        };
        Remote::connect(&server.url(), options).await
    };
    for (token, expected) in [
        (None, "asks for a token"),
        (Some("other"), "does not know the token"),
        (Some("weak"), "has not the role"),
    ] {
        let error = connect(token).await.unwrap_err();
        let Error::Refused(Refusal::Denied { problem }) = &error else {
            panic!("{error:?}");
        };
        assert!(
            problem.contains(expected) && problem.contains("ABIDE_TOKEN"),
            "{problem}"
        );
    }
    let remote = connect(Some("s3cret")).await.unwrap();
    remote.run(start(1)).await.unwrap();
    let shown = format!(
        "{remote:?} {:?}",
        Options {
            token: Some("s3cret".into()),
            ..Options::default()
        }
    );
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_server_that_is_not_abide_is_reported_with_its_answer() {
    let answers = |status: StatusCode| {
        let page = move || async move { (status, Html("<h1>Welcome</h1>")) };
        Router::new().fallback(page)
    };
    for status in [
        StatusCode::OK,
        StatusCode::NOT_FOUND,
        StatusCode::IM_A_TEAPOT,
    ] {
        let server = Server::with(answers(status), "127.0.0.1:0".parse().unwrap()).await;
        let error = connect(&server.url()).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("Welcome") && text.contains("abide server"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_busy_has_written_nothing() {
    let busy = || async {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "7")],
        )
    };
    let server = Server::with(Router::new().fallback(busy), "127.0.0.1:0".parse().unwrap()).await;
    let error = connect(&server.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("again in 7 s"), "{error}");
}

#[tokio::test]
async fn an_address_that_cannot_be_used_is_refused_before_anything_is_sent() {
    for url in [
        "ftp://host",
        "http://me:s3cret@host",
        "http://host?token=s3cret",
    ] {
        let error = connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Broken(_)), "{error:?}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_store_of_a_server_lends_no_transaction() {
    let server = Server::of(memory()).await;
    let remote = connect(&server.url()).await.unwrap();
    let error = remote.begin(None).await.err().unwrap();
    assert!(
        matches!(error, Error::Refused(Refusal::NoDatabase)),
        "{error:?}"
    );
    assert!(error.to_string().contains("directly"), "{error}");
}

#[tokio::test]
async fn the_time_is_that_of_the_server() {
    let clock = abide_kernel::ManualClock::at(abide_core::model::Timestamp::from_micros(0));
    let store = Memory::new(Arc::new(clock), abide_core::model::Limits::default());
    let server = Server::of(Arc::new(store)).await;
    let remote = connect(&server.url()).await.unwrap();
    assert!(
        remote.clock().now().as_micros() < 3_600_000_000,
        "{}",
        remote.clock().now()
    );
}

#[tokio::test]
async fn a_huge_batch_is_one_request() {
    let store = memory();
    let server = Server::of(store.clone()).await;
    let remote = connect(&server.url()).await.unwrap();
    let answers = remote.run(start(100_000)).await.unwrap();
    let [Answer::Started(each)] = answers.as_slice() else {
        panic!("{} answers", answers.len());
    };
    assert!(each.len() == 100_000 && each.iter().all(Result::is_ok));
    let refused = remote.run(start(100_001)).await;
    assert!(matches!(
        refused,
        Err(Error::Refused(Refusal::LimitExceeded { .. }))
    ));
}

#[tokio::test]
async fn closing_it_leaves_the_servers_store_open() {
    let store = memory();
    let server = Server::of(store.clone()).await;
    let remote = connect(&server.url()).await.unwrap();
    remote.close().await;
    assert!(matches!(remote.run(start(1)).await, Err(Error::Closed)));
    store.run(start(1)).await.unwrap();
    // A server whose store is closed is about to go away; the client may wait for the next.
    let other = connect(&server.url()).await.unwrap();
    store.close().await;
    let error = other.run(start(1)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
}
