//! Opening a store by its connection string, and the errors when that is wrong.

use std::time::{Duration, Instant};

use abide::Abide;
use abide::store::OpenError;

use crate::common::{Lab, soon};

/// The error for a connection string, and the time until it was reported.
async fn refused(url: &str) -> (OpenError, Duration) {
    let begun = Instant::now();
    let error = soon("an answer", Abide::open(url)).await.err();
    (
        error.unwrap_or_else(|| panic!("{url:?} was opened")),
        begun.elapsed(),
    )
}

#[tokio::test]
async fn an_invalid_connection_string_is_refused_with_examples() {
    for (url, expected) in [
        ("", "it does not say which store"),
        ("foo", "it does not say which store"),
        ("orders.db", "it does not say which store"),
        ("mysql://x", "there is no such store"),
        ("memory:x", "memory: takes nothing after it"),
        #[cfg(not(feature = "remote"))]
        ("http://localhost:8080", "add the feature `remote`"),
    ] {
        let (error, _) = refused(url).await;
        let text = error.to_string();
        assert!(matches!(error, OpenError::BadUrl { .. }), "{error:?}");
        assert!(
            text.contains(expected) && text.contains(&format!("{url:?}")),
            "{text}"
        );
        let examples = ["memory:", "sqlite:orders.db", "postgres://", "https://"];
        assert!(
            examples.iter().all(|example| text.contains(example)),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_password_is_not_repeated() {
    for url in [
        "postgress://me:s3cret@host/orders",
        "mysql://me:s3cret@host/orders?ssl=true",
        "http://host/?password=s3cret",
        "postgres://me:s3cret@127.0.0.1:1/orders",
        "postgres://me:s3cret@host:port/orders",
    ] {
        let (error, _) = refused(url).await;
        let text = format!("{error} {error:?}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_sqlite_file_that_cannot_be_is_refused_with_the_reason() {
    for url in ["sqlite:", "sqlite::memory:", "sqlite://"] {
        let (error, _) = refused(url).await;
        assert!(matches!(error, OpenError::BadUrl { .. }), "{error:?}");
        assert!(error.to_string().contains("it names no file"), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(
        &text,
        "these are my notes and no database at all, as anybody can see".repeat(20),
    )
    .unwrap();
    for (url, expected) in [
        (
            "sqlite:/no/such/dir/x.db".to_owned(),
            "no directory /no/such/dir",
        ),
        (
            format!("sqlite:{}", dir.path().display()),
            "it is a directory",
        ),
        (
            format!("sqlite:{}", text.display()),
            "is not an SQLite database",
        ),
    ] {
        let (error, took) = refused(&url).await;
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        assert!(took < Duration::from_secs(2), "{took:?} for {text}");
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn an_sqlite_file_is_created_and_found_again() {
    // rule 1.1
    let dir = tempfile::tempdir().unwrap();
    for url in ["sqlite:", "sqlite://"] {
        let url = format!("{url}{}/orders.db", dir.path().display());
        let abide = Abide::open(&url).await.unwrap();
        let key = abide::model::Key::new("order:1").unwrap();
        let started = abide
            .start(abide::Job::<u32>::new("ship"), 1)
            .key("order:1")
            .or_existing()
            .await
            .unwrap();
        abide.close().await;
        let again = Abide::open(&url).await.unwrap();
        assert_eq!(again.get(key).await.unwrap().unwrap().id, started.id());
        again.close().await;
    }
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_postgres_server_that_is_not_there_is_reported_in_time() {
    for url in [
        "postgres://127.0.0.1:1/x",
        "postgresql://stranger@127.0.0.1:1/x",
    ] {
        let (error, took) = refused(url).await;
        let text = error.to_string();
        assert!(
            text.contains("cannot be reached") && text.contains("refused"),
            "{text}"
        );
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
    for url in ["postgres:", "postgres://host:notaport/x"] {
        let (error, _) = refused(url).await;
        assert!(
            error.to_string().contains("invalid connection string"),
            "{error}"
        );
    }
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_there_is_reported_by_its_name() {
    let url = tokio::task::spawn_blocking(|| abide_pgtest::server().url("no_such_database"));
    let (error, _) = refused(&url.await.unwrap()).await;
    assert!(error.to_string().contains("no_such_database"), "{error}");
}

on_every_store! {
    async fn a_store_is_opened_by_many_at_once(lab: Lab) {
        // The first one makes the tables, and the others find them.
        let url = lab.url().to_owned();
        let opening = (0..6).map(|_| {
            let url = url.clone();
            tokio::spawn(async move { Abide::open(&url).await })
        });
        for opened in opening.collect::<Vec<_>>() {
            assert!(opened.await.unwrap().unwrap().depths().await.unwrap().is_empty());
        }
    }
}
