//! Databases that the tests of a run use one after the other.

use std::path::Path;
use std::process::Command;

use abide_pgtest::{POOL_VARIABLE, psql, server};

const SCHEMA: &str = "create schema abide; \
    create table abide.schema_version (version int); insert into abide.schema_version values (1); \
    create table abide.things (id bigint generated always as identity, name text)";

/// Set for the run inside the run: the step that it takes.
const STEP: &str = "ABIDE_TEST_POOL_STEP";

/// Runs `a_step` of this file in as many processes as there are steps, one after the other, on one server with a pool.
fn run(steps: &[&str]) -> String {
    let own = std::env::current_exe().unwrap();
    let each = steps.iter().map(|step| {
        format!(
            "{STEP}={step} {} --exact pool::a_step --nocapture || exit 1",
            own.display()
        )
    });
    let script = each.collect::<Vec<_>>().join("\n");
    let output = Command::new(env!("CARGO_BIN_EXE_abide-pgtest"))
        .args(["sh", "-c", &script])
        .env_remove(abide_pgtest::URL_VARIABLE)
        .env_remove(POOL_VARIABLE)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// A process of a run: it takes a database, which must be empty, and leaves something behind.
#[test]
fn a_step() {
    let Ok(step) = std::env::var(STEP) else {
        return;
    };
    let url = server().emptied_database(SCHEMA);
    println!("took {}", url.rsplit('/').next().unwrap());
    assert_eq!(psql(&url, "select count(*) from abide.things"), "0");
    assert_eq!(psql(&url, "select count(*) from abide.schema_version"), "1");
    let added = "insert into abide.things (name) values ('a') returning id";
    assert_eq!(psql(&url, added), "1");
    match step.as_str() {
        "rows" => {}
        "deletes" => {
            psql(&url, "delete from abide.things");
        }
        "alters" => {
            psql(
                &url,
                "alter table abide.things drop column name; create table public.more (it int)",
            );
        }
        "is_killed" => {
            // It holds a lock on the table, and outlives the test.
            let psql = Command::new("sh")
                .args([
                    "-c",
                    "(echo 'begin; lock abide.things;'; sleep 30) 2>&1 | psql -q \"$0\" >/dev/null 2>&1 & sleep 0.5",
                    &url,
                ])
                .status();
            assert!(psql.unwrap().success());
        }
        other => panic!("there is no step {other}"),
    }
    let files = std::env::var(POOL_VARIABLE).unwrap();
    assert!(Path::new(&files).join("0").is_file());
    // Another database, because this process holds the first.
    assert_ne!(server().emptied_database(SCHEMA), url);
}

#[test]
fn a_database_comes_back_without_the_rows_and_the_numbers_of_the_test_before() {
    let text = run(&["rows", "deletes", "rows"]);
    assert_eq!(text.matches("took abide_pool_0").count(), 3, "{text}");
}

#[test]
fn a_database_whose_tables_were_changed_is_made_anew() {
    let text = run(&["alters", "alters", "rows"]);
    assert_eq!(text.matches("took abide_pool_0").count(), 3, "{text}");
}

#[test]
fn a_connection_that_outlives_its_test_is_ended() {
    let text = run(&["is_killed", "rows"]);
    assert_eq!(text.matches("took abide_pool_0").count(), 2, "{text}");
}
