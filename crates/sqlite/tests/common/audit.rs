//! Audits a file: the columns that indexes are made of must agree with the others.

use std::path::PathBuf;

use abide_sqlite::rusqlite::Connection;
use abide_sqlite::rusqlite::types::ValueRef;

/// Audits a file when it is dropped, and then lets go of what it holds.
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

/// Invariants of each row, in words and as a condition.
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
        "wakes, or never does, exactly when it is scheduled, parked or reserved",
        "(wake_at is not null) = (status in (0, 1, 4, 5))",
    ),
    (
        "wakes when it is due, if ever",
        "wake_at is null or wake_at = coalesce(iif(status = 0, null, due_at), 9223372036854775807 - (status = 1))",
    ),
    (
        "has a worker exactly while it executes",
        "(worker is not null) = (status = 3)",
    ),
    (
        "has a lease only while it executes, and a time limit only with a lease that ends by then",
        "(lease_until is null or status = 3) and (limit_until is null or lease_until <= limit_until)",
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
        "(taken is null) = (key is null and unique_key is null)
         and (key is null or taken & 1 = scopes >> status & 1)
         and (unique_key is null or taken & 65536 = scopes >> status & 65536)",
    ),
    (
        "counts the signals in its inbox",
        "coalesce(extra ->> '$.inbox.signals', 0) =
         (select count(*) from abide_signals where pending_in = abide_instances.id and kind = 0)",
    ),
    (
        "counts the updates and cancellations in its inbox",
        "coalesce(extra ->> '$.inbox.updates', 0) =
         (select count(*) from abide_signals where pending_in = abide_instances.id and kind > 0)",
    ),
    (
        "is aside only while it runs or is about to",
        "extra ->> '$.aside' is null or status in (2, 3)",
    ),
];

/// Invariants of each record of a message.
const SIGNALS: &[(&str, &str)] = &[
    (
        "is in an inbox exactly while it is pending",
        "pending_in is iif(status in (1, 2), instance_id, null) and (status not in (1, 2) or sequence is not null)",
    ),
    (
        "is held exactly while it says so",
        "held_until is iif(status = 0, hold_until, null) and (status <> 0 or held_until is not null)",
    ),
    (
        // One that was accepted with a dedup key is the chain's, and outlives its run (rule 16.2).
        "belongs to an instance that is there, and to its chain",
        "iif(instance_id is null, chain_id is null,
             coalesce(chain_id = (select coalesce(first_id, id) from abide_instances where id = instance_id),
                      dedup_key is not null and sequence is not null))",
    ),
    (
        "has the key of its instance",
        "instance_id is null or key is (select key from abide_instances where id = instance_id)
             or not exists (select 1 from abide_instances where id = instance_id)",
    ),
    (
        "has a number that was given out",
        "id <= (select last from abide_numbers where name = 'signals')",
    ),
];

/// Invariants of each waiter.
const WAITERS: &[(&str, &str)] = &[
    (
        "stands for an instance that waits for events of its type, and is in the same partition",
        "exists (select 1 from abide_instances as i
                 where i.id = instance_id and coalesce(i.extra ->> '$.aside.status', i.status) = 4
                     and i.partition_key is abide_waiters.partition_key
                     and 'event:' || event_type in (select value from json_each(i.extra, '$.awaits.names')))",
    ),
    (
        "is counted with the others of its type",
        "(select total from abide_waiter_totals as t where t.event_type = abide_waiters.event_type) =
         (select count(*) from abide_waiters as w where w.event_type = abide_waiters.event_type)",
    ),
];

/// Problems of a file, each as a sentence.
pub fn violations(conn: &Connection) -> Vec<String> {
    let mut found = Vec::new();
    for (table, conditions) in [("abide_instances", ROWS), ("abide_signals", SIGNALS)] {
        for (words, condition) in conditions {
            let sql = format!("select id from {table} where ({condition}) is not true");
            found.extend(
                strings(conn, &sql)
                    .into_iter()
                    .map(|id| format!("{table} {id}: it is not so that it {words}")),
            );
        }
    }
    for (words, condition) in WAITERS {
        let sql = format!("select instance_id from abide_waiters where ({condition}) is not true");
        found.extend(
            strings(conn, &sql)
                .into_iter()
                .map(|id| format!("a waiter of {id}: it is not so that it {words}")),
        );
    }
    let totals = "select event_type from abide_waiter_totals
                  where event_type not in (select event_type from abide_waiters)";
    found.extend(
        strings(conn, totals)
            .into_iter()
            .map(|of| format!("{of} has a total and no waiter")),
    );
    let without = "select id from abide_instances
                   where coalesce(extra ->> '$.aside.status', status) = 4
                       and exists (select 1 from json_each(extra, '$.awaits.names') where value like 'event:%')
                       and id not in (select instance_id from abide_waiters)";
    found.extend(
        strings(conn, without)
            .into_iter()
            .map(|id| format!("{id} waits for an event, and no waiter stands for it")),
    );
    let terms = "select path_id || ' ' || value || ' ' || sequence from abide_event_terms as t
                 where not exists (select 1 from abide_events as e
                                   where e.sequence = t.sequence and e.published_at = t.published_at)";
    found.extend(
        strings(conn, terms)
            .into_iter()
            .map(|term| format!("the term {term} has no event")),
    );
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
