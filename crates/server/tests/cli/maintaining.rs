//! `migrate`, `bench`.

use serde_json::json;

use crate::cli::lab::{Lab, on_every_store};

#[tokio::test]
async fn a_file_is_migrated_when_asked_and_the_plan_says_how() {
    let lab = Lab::sqlite();
    let plan = lab.run(&["migrate", "--plan"]).await;
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(
        plan.out.contains("create table abide_instances") && !lab.path("orders.db").exists(),
        "{plan:?}"
    );
    // The plan is a script that does it.
    let other = lab.path("by-hand.db");
    abide::sqlite::rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch(&plan.out)
        .unwrap();
    let newest = abide::sqlite::migrations().last().unwrap().version;
    assert_eq!(abide::sqlite::schema_version(&other).unwrap(), newest);

    let done = lab.run(&["migrate"]).await;
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{done:?}");
    assert_eq!(
        lab.json(&["migrate", "--plan"]).await,
        json!({"version": newest, "newest": newest, "sql": ""})
    );
    assert!(
        lab.done(&["migrate", "--schema"])
            .await
            .contains("create table abide_instances")
    );
    assert_eq!(lab.run(&["list"]).await.code, 0);
}

#[tokio::test]
async fn a_database_is_migrated_when_asked_and_the_plan_says_how() {
    let lab = Lab::without_schema();
    let plan = lab.done(&["migrate", "--plan"]).await;
    assert!(plan.contains("create schema if not exists abide"), "{plan}");
    assert_eq!(lab.run(&["list"]).await.code, 3);
    // The plan is a script that does it.
    let other = Lab::without_schema();
    abide_pgtest::psql(&other.url, &plan);
    assert_eq!(other.run(&["list"]).await.code, 0);

    let newest = abide::postgres::migrations().last().unwrap().version;
    assert_eq!(
        lab.json(&["migrate"]).await,
        json!({"version": 0, "newest": newest, "applied": newest})
    );
    assert_eq!(lab.run(&["list"]).await.code, 0);
}

#[tokio::test]
async fn a_server_migrates_itself() {
    let lab = Lab::server();
    let ran = lab.run(&["migrate", "--plan"]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("by itself"), "{ran:?}");
}

on_every_store! {
    async fn a_bench_measures_and_ends_all_that_it_began(lab: Lab) {
        lab.abide().await;
        let measured = lab.json(&["bench", "--seconds", "1", "--callers", "4"]).await;
        let figures = measured["figures"].as_array().unwrap();
        let names: Vec<_> = figures.iter().map(|figure| figure["what"].as_str().unwrap()).collect();
        assert_eq!(names, ["starts", "runs", "steps", "signals"]);
        assert!(figures.iter().all(|figure| figure["count"].as_u64() > Some(0)), "{measured}");
        let left = lab.json(&["list", "--queue", "bench", "--all"]).await;
        let unfinished: Vec<_> = left["items"].as_array().unwrap().iter().filter(|one| one["status"] != "done").collect();
        assert!(unfinished.is_empty(), "{unfinished:?}");
    }
}
