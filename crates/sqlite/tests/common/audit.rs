//! Looks a file over: the columns that indexes are made of must say what the others say.

use std::path::PathBuf;

use abide_sqlite::rusqlite::Connection;
use abide_sqlite::rusqlite::types::ValueRef;

/// Looks a file over when it is dropped, and then lets go of what it holds.
pub struct Audit<T> {
    pub path: PathBuf,
    #[expect(dead_code, reason = "it only has to live")]
    pub held: T,
}

impl<T> Drop for Audit<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let found = violations(&Connection::open(&self.path).unwrap());
            assert!(found.is_empty(), "{}", found.join("\n"));
        }
    }
}

/// What must hold of each row, in words and as a condition.
const ROWS: &[(&str, &str)] = &[
    (
        "can be claimed exactly when it is runnable and not behind",
        "(ready_at is not null) = (status = 2 and (standing is null or standing = 2))",
    ),
    (
        "is ready since it is due",
        "ready_at is null or ready_at = due_at",
    ),
    (
        "wakes exactly when it is scheduled or parked",
        "(wake_at is not null) = (status in (1, 4, 5))",
    ),
    (
        "wakes when it is due, if ever",
        "wake_at is null or wake_at = coalesce(due_at, 9223372036854775807)",
    ),
    (
        "has a worker exactly while it executes",
        "(worker is not null) = (status = 3)",
    ),
    (
        "has finished exactly when it has ended",
        "(finished_at is not null) = (status >= 6)",
    ),
    (
        "stands in its partition as its status says",
        "case when partition_key is null then standing is null
              when status = 2 then standing in (1, 2)
              when status = 3 then standing = 3
              else coalesce(standing, 0) = 0 end",
    ),
    (
        "holds its keys as its scopes say",
        "taken is iif(key is null and unique_key is null, null, scopes >> status & 65537)",
    ),
];

/// What is wrong with a file, each as a sentence.
pub fn violations(conn: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    for (words, condition) in ROWS {
        let sql = format!("select id from abide_instances where ({condition}) is not true");
        found.extend(
            strings(conn, &sql)
                .into_iter()
                .map(|id| format!("instance {id}: it is not so that it {words}")),
        );
    }
    let lanes = "select queue || '/' || machine || '/' || version from abide_instances
                 group by queue, machine, version having count(distinct lane) > 1";
    found.extend(
        strings(conn, lanes)
            .into_iter()
            .map(|lane| format!("{lane} has two numbers")),
    );
    let histories = "select distinct instance_id from abide_history
                     where instance_id not in (select id from abide_instances)";
    found.extend(
        strings(conn, histories)
            .into_iter()
            .map(|id| format!("instance {id} is gone and its history is not")),
    );
    let checks = strings(conn, "pragma integrity_check");
    found.extend(checks.into_iter().filter(|check| check != "ok"));
    found
}

fn strings(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| {
        Ok(match row.get_ref(0)? {
            ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{:?}", other),
        })
    });
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}
