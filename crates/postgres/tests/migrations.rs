//! The schema is brought up to date by the first that connects, and never down.

use crate::common::{open, start, start_all};
use abide_kernel::{Error, Store};
use abide_pgtest::psql;
use abide_postgres::{Listen, Options, Postgres, migrations};

const VERSIONS: &str = "select string_agg(version || ' ' || name, ',' order by version) \
    from abide.schema_version";

#[tokio::test]
async fn an_empty_database_is_migrated_once() {
    let url = abide_pgtest::server().fresh_database();
    let all: Vec<String> = migrations()
        .iter()
        .map(|one| format!("{} {}", one.version, one.name))
        .collect();
    let store = open(&url).await;
    assert_eq!(psql(&url, VERSIONS), all.join(","));
    let id = start_all(&store, vec![start("m")]).await[0].id();
    store.close().await;

    let store = open(&url).await;
    assert_eq!(psql(&url, VERSIONS), all.join(","));
    assert!(store.get(&id.into()).await.unwrap().is_some());
}

#[tokio::test]
async fn eight_that_come_at_once_migrate_once() {
    let url = abide_pgtest::server().fresh_database();
    let opened = futures_util::future::join_all((0..8).map(|_| open(&url))).await;
    for store in &opened {
        start_all(store, vec![start("m")]).await;
    }
    let rows = psql(&url, "select count(*) from abide.schema_version");
    assert_eq!(rows, migrations().len().to_string());
    assert_eq!(psql(&url, "select count(*) from abide.instances"), "8");
}

#[tokio::test]
async fn a_newer_database_is_refused_with_both_versions() {
    let url = abide_pgtest::server().fresh_database();
    open(&url).await.close().await;
    psql(
        &url,
        "insert into abide.schema_version (version, name) values (999, 'later')",
    );
    let Err(Error::Broken(text)) = Postgres::connect(&url, Options::default()).await else {
        panic!("it is opened all the same")
    };
    let newest = migrations().last().unwrap().version.to_string();
    assert!(text.contains("999") && text.contains(&newest), "{text}");
    assert!(text.contains("run a newer release"), "{text}");
}

#[tokio::test]
async fn the_schema_of_a_development_version_is_refused_and_not_touched() {
    let url = abide_pgtest::server().fresh_database();
    open(&url).await.close().await;
    for later in [
        "",
        "; insert into abide.schema_version values (2, 'isolation')",
    ] {
        let rename = "update abide.schema_version set name = 'instances' where version = 1";
        psql(&url, &format!("{rename}{later}"));
        let before = psql(&url, VERSIONS);
        let Err(Error::Broken(text)) = Postgres::connect(&url, Options::default()).await else {
            panic!("it is opened all the same")
        };
        assert!(
            text.contains("development version") && text.contains("use another database"),
            "{text}"
        );
        assert_eq!(psql(&url, VERSIONS), before);
    }
}

#[tokio::test]
async fn who_may_not_migrate_says_what_is_missing() {
    let url = abide_pgtest::server().fresh_database();
    let options = || Options {
        migrate: false,
        ..Options::default()
    };
    let Err(Error::NotSetUp(text)) = Postgres::connect(&url, options()).await else {
        panic!()
    };
    assert!(
        text.contains("version 0") && text.contains("abide migrate"),
        "{text}"
    );
    open(&url).await.close().await;
    Postgres::connect(&url, options()).await.unwrap();
}

#[tokio::test]
async fn a_role_without_rights_to_change_the_schema_can_use_it() {
    let url = abide_pgtest::server().fresh_database();
    open(&url).await.close().await;
    psql(
        &url,
        "drop role if exists clerk; create role clerk login; \
        grant usage on schema abide to clerk; \
        grant select, insert, update, delete on all tables in schema abide to clerk; \
        grant usage on all sequences in schema abide to clerk",
    );
    let clerk = url.replacen("://abide", "://clerk", 1);
    assert_ne!(clerk, url);
    let store = open(&clerk).await;
    start_all(&store, vec![start("m")]).await;
    store.close().await;
    psql(&url, "drop owned by clerk; drop role clerk");
}

#[tokio::test]
async fn a_wrong_url_is_refused_and_an_absent_server_is_not_there() {
    let refused = Postgres::connect("mysql://h/d", Options::default())
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("postgres://role:password@host"),
        "{refused}"
    );
    let options = Options {
        listen: Listen::At("nonsense".into()),
        ..Options::default()
    };
    let url = abide_pgtest::server().fresh_database();
    assert!(matches!(
        Postgres::connect(&url, options).await,
        Err(Error::Broken(_))
    ));
    let absent = Postgres::connect("postgres://u@127.0.0.1:1/d", Options::default()).await;
    assert!(matches!(absent, Err(Error::Unavailable(_))), "{absent:?}");
    let unknown_role = url.replacen("abide@", "nobody@", 1);
    let Err(error) = Postgres::connect(&unknown_role, Options::default()).await else {
        panic!()
    };
    assert!(error.to_string().contains("nobody"), "{error}");
}
