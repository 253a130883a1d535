//! Every statement of the hot paths finds its rows by the index it was written for, whatever SQLite believes about the
//! tables.

use abide_core::model::{CommandId, InstanceId, Key, Name};
use abide_kernel::{CommandFilter, Filter, WaiterFilter};
use rusqlite::Connection;

use crate::sql::{
    around, children, claim, commands, contracts, documents, events, inbox, insert, keys, load,
    lookback, machines, outbox, partitions, query, requests, runs, sweep, update, waiters, workers,
};

/// Each statement, with the index that its plan must name.
fn statements() -> Vec<(String, &'static str)> {
    const BY_ID: &str = "INTEGER PRIMARY KEY";
    let fixed = [
        (load::LOCK, BY_ID),
        (load::DUE, "abide_parked"),
        (load::HELD, "abide_held"),
        (load::ABOVE, BY_ID),
        (
            load::BLOCKED_ABOVE,
            "abide_blocked (machine=? AND version=? AND rowid>?)",
        ),
        (claim::TAKE, BY_ID),
        (claim::TAKE_GUARDED, BY_ID),
        (claim::PARTITION_OF, BY_ID),
        (update::ADVANCE, BY_ID),
        (update::FINISH, BY_ID),
        (update::FINISH_GUARDED, BY_ID),
        (update::MOVE, BY_ID),
        (update::MOVE_GUARDED, BY_ID),
        (update::LEASE, BY_ID),
        (
            load::LAPSED,
            "abide_leased (lease_until>? AND lease_until<?)",
        ),
        (machines::POLICY, "PRIMARY KEY (machine=? AND version=?)"),
        (workers::REWRITE, BY_ID),
        (insert::OPEN, BY_ID),
        (keys::KEY_HOLDER, "abide_key_taken"),
        (keys::UNIQUE_KEY_HOLDER, "abide_unique_key_taken"),
        (children::CHILDREN, "abide_children"),
        (children::CHILDREN_ABOVE, "abide_children"),
        (children::CHILDREN_BYTES, "abide_children"),
        (partitions::FRONT, "abide_partition_front"),
        (partitions::FIRST, "abide_partition_queue"),
        (partitions::STEP_BACK, BY_ID),
        (partitions::COME_FORWARD, BY_ID),
        (runs::FIND_ID, BY_ID),
        (runs::FIND_KEY, "abide_key ("),
        (runs::NEWEST, "COVERING INDEX abide_chain (first_id=?)"),
        (runs::FIRST, BY_ID),
        (runs::COPY, BY_ID),
        (runs::SUPERSEDE, BY_ID),
        (
            runs::ADOPT,
            "abide_children (parent_id=? AND parent_barrier=?)",
        ),
        (keys::KEYS, BY_ID),
        (keys::GIVE_UP, BY_ID),
        (runs::LIVE_CHILDREN, "abide_children (parent_id=?)"),
        (around::AROUND, BY_ID),
        (
            around::AROUND,
            "abide_children (parent_id=? AND parent_barrier>?)",
        ),
        (around::AROUND, "abide_partition_front (partition_key=?)"),
        (
            around::AROUND,
            "COVERING INDEX abide_signals_pending (pending_in=? AND kind=? AND name=? AND sequence>?)",
        ),
        (commands::NUMBER, "PRIMARY KEY"),
        (commands::REWRITE, BY_ID),
        (commands::CLOSE, BY_ID),
        (
            commands::PENDING,
            "COVERING INDEX abide_signals_pending (pending_in=?)",
        ),
        (commands::MOVE_PENDING, BY_ID),
        (
            commands::DEDUPED,
            "abide_signals_deduped (chain_id=? AND kind=? AND dedup_key=?)",
        ),
        (commands::HELD, "abide_signals_held (key=?)"),
        (
            commands::OVER,
            "COVERING INDEX abide_signals_held_until (held_until",
        ),
        (commands::EXPIRE, BY_ID),
        (commands::ADRIFT, "abide_signals_adrift (received_at<?)"),
        (commands::DELETE, BY_ID),
        (commands::BY_ID, BY_ID),
        (inbox::ALL, "INDEX abide_signals_pending (pending_in=?)"),
        (
            inbox::UPDATES,
            "INDEX abide_signals_pending (pending_in=? AND kind>?)",
        ),
        (
            inbox::NAMED,
            "INDEX abide_signals_pending (pending_in=? AND kind=? AND name=?)",
        ),
        (
            inbox::AWAITED,
            "abide_signals_pending (pending_in=? AND kind=? AND name=? AND sequence<?)",
        ),
        (
            inbox::FROM_KIND,
            "abide_signals_pending (pending_in=? AND kind>?)",
        ),
        (
            events::KNOWN,
            "COVERING INDEX abide_events_known (event_type=? AND event_id=?)",
        ),
        (
            events::OLD,
            "COVERING INDEX abide_events_published (published_at<?)",
        ),
        (
            lookback::PATHS,
            "COVERING INDEX abide_event_paths_of_type (event_type=?)",
        ),
        (
            lookback::PATH,
            "abide_event_paths_of_type (event_type=? AND path=?)",
        ),
        (
            lookback::TERMS,
            "PRIMARY KEY (path_id=? AND value=? AND sequence<?)",
        ),
        (lookback::USE, BY_ID),
        (
            lookback::UNUSED,
            "COVERING INDEX abide_event_paths_used (used_at<?)",
        ),
        (lookback::FORGET, BY_ID),
        (
            events::DELETE_TERMS,
            "abide_event_terms_of_event (sequence=?)",
        ),
        (events::BY_SEQUENCE, BY_ID),
        (events::DELETE, BY_ID),
        (events::NEWEST, BY_ID),
        (
            events::NEWEST_OF_TYPE,
            "abide_events_of_type (event_type=? AND rowid<?)",
        ),
        (
            waiters::FIRST_PATH,
            "COVERING INDEX abide_waiters_found (event_type=?)",
        ),
        (
            waiters::NEXT_PATH,
            "COVERING INDEX abide_waiters_found (event_type=? AND path>?)",
        ),
        (
            waiters::AT,
            "abide_waiters_found (event_type=? AND path=? AND value=?)",
        ),
        (waiters::CLOSE, "PRIMARY KEY (instance_id=?)"),
        (waiters::DELETE_TOTAL, "PRIMARY KEY (event_type=?)"),
        (waiters::TOTAL, "PRIMARY KEY (event_type=?)"),
        (machines::DECLARED, "PRIMARY KEY"),
        (
            requests::RECALL,
            "abide_requests_known (caller=? AND key=? AND part=?)",
        ),
        (requests::OLD, "abide_requests_created (created_at<?)"),
        (requests::DELETE, BY_ID),
        (outbox::THERE, BY_ID),
        (outbox::REFUSE, BY_ID),
        (outbox::TAKE, BY_ID),
        (outbox::REFUSED, BY_ID),
        (outbox::AGAIN, BY_ID),
        (outbox::FORGET, BY_ID),
        (
            outbox::OLD_REFUSED,
            "abide_outbox_refused_at (refused_at<?)",
        ),
        (documents::FORGET, "PRIMARY KEY (kind=? AND name=?)"),
        (documents::OF_KIND, "PRIMARY KEY (kind=? AND name>?)"),
        (machines::LIST, "PRIMARY KEY ((machine,version)>(?,?))"),
        (documents::OF_NAME, "PRIMARY KEY (kind=? AND name=?)"),
        (contracts::CONTRACT, BY_ID),
        (contracts::NOTE, BY_ID),
        (contracts::NAMED, "INTEGER PRIMARY KEY (rowid>?)"),
        (contracts::FORGET, BY_ID),
        (workers::NAMED, "abide_workers_by_name"),
        (workers::DEAD_HOLDERS, "abide_held (worker>?)"),
        (workers::FORGET, "abide_workers_by_lease (lease_until<?)"),
        (workers::LIVING, "abide_workers_by_lease"),
        (workers::RENEW, BY_ID),
        (workers::EXPIRE, BY_ID),
        (sweep::EXPIRING, "abide_finished"),
        (sweep::KIN, BY_ID),
        (
            sweep::EXPIRED_CHILDREN,
            "abide_children (parent_id=? AND parent_barrier>?)",
        ),
        (sweep::TRIM_HISTORY, "PRIMARY KEY"),
        (update::MOVE_HISTORY, "PRIMARY KEY"),
        (sweep::TRIM_SIGNALS, "abide_signals_of_run (instance_id=?)"),
        (sweep::FORGET_CHAIN, "abide_signals_deduped (chain_id=?)"),
        (sweep::DELETE, BY_ID),
        (query::HISTORY, "PRIMARY KEY"),
        (query::ENDING, BY_ID),
    ];
    let mut all: Vec<_> = fixed.map(|(sql, index)| (sql.to_owned(), index)).into();
    for lanes in [1, 2, 7, 32] {
        all.push((claim::find_in(lanes, claim::CANDIDATE), "abide_claimable"));
        all.push((claim::find_in(lanes, claim::ORDER), "abide_claimable"));
    }
    all.push((query::by_id(), BY_ID));
    all.push((query::by_key(), "abide_key ("));
    all
}

/// The plan of a statement, a line for each step.
fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut statement = conn.prepare(&format!("explain query plan {sql}")).unwrap();
    let steps = statement
        .raw_query()
        .mapped(|row| row.get(3))
        .collect::<Result<_, _>>();
    steps.unwrap()
}

/// Tables of that many rows, most of them finished.
fn filled(rows: u32) -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    for migration in crate::migrations() {
        conn.execute_batch(migration.sql).unwrap();
    }
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_instances (
            status, ready_at, wake_at, worker, finished_at, lane, priority, due_at, epoch, settled, step, step_seq,
            attempt, cause, history_seq, partition_key, standing, parent_id, parent_barrier, key, unique_key,
            scopes, taken, queue, machine, version, kind, first_step, created_at, updated_at, first_id, state)
        select iif(i % 10 = 0, 2, iif(i % 10 = 1, 1, iif(i % 10 = 2, 3, 6))),
               iif(i % 10 = 0, i, null), iif(i % 10 = 1, iif(i % 20 = 1, i, 9223372036854775806), null),
               iif(i % 10 = 2, i % 7, null),
               iif(i % 10 > 2, i, null), i % 5, i % 3, i, 1, 1, 'step', 1, 0, 0, 1, 'p' || i,
               iif(i % 10 = 0, 2, null), i / 10, 1, 'k' || i, cast('u' || i as blob), 4128831,
               iif(i % 10 < 3, 65537, 0), 'queue' || i % 5, 'machine', 1, 0, 'step', i, i, iif(i % 4 = 0, i - 1, null), '{}'
        from n where ?1 > 0";
    conn.execute(fill, [rows]).unwrap();
    let signals = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_signals (
            id, status, kind, instance_id, chain_id, sequence, pending_in, held_until, name, key, dedup_key, received_at,
            arguments)
        select i, iif(i % 10 = 0, 0, iif(i % 10 < 3, 1, 3)), i % 4 = 0, iif(i % 10 = 0, null, i / 5),
               iif(i % 10 = 0, null, i / 5), iif(i % 10 = 0, null, i), iif(i % 10 in (1, 2), i / 5, null),
               iif(i % 20 = 0, i, null), 'name' || i % 3, 'k' || i / 5, iif(i % 2 = 0, 'd' || i, null), i, '[]'
        from n where ?1 > 0";
    conn.execute(signals, [rows]).unwrap();
    let events = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_events (published_at, event_type, event_id, payload)
        select i, 'type' || i % 3, 'e' || i, 'null' from n where ?1 > 0";
    conn.execute(events, [rows]).unwrap();
    let paths = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_event_paths (used_at, event_type, path)
        select i, 'type' || i % 300, 'path' || i from n where ?1 > 0";
    conn.execute(paths, [rows]).unwrap();
    let terms = "
        insert into abide_event_terms (path_id, value, sequence, published_at)
        select 1 + sequence % 16, 'd' || sequence % 100, sequence, published_at from abide_events";
    conn.execute(terms, []).unwrap();
    let waiters = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_waiters (instance_id, place, value, path, event_type, since, wait_id, conditions)
        select i / 2, i % 2, 's' || i, 'path' || i % 2, 'type' || i % 3, i, 'w' || i, '[]' from n where ?1 > 0";
    conn.execute(waiters, [rows]).unwrap();
    conn
}

/// Checks the plan of each statement.
pub(crate) fn all_by_their_index(conn: &Connection) {
    for (sql, index) in statements() {
        let steps = plan(conn, &sql);
        let whole = steps.join("\n");
        assert!(
            whole.contains(index),
            "{sql}\nis not served by {index}:\n{whole}"
        );
        // What another part of the statement has found may be read as a whole.
        let found: Vec<&str> = steps
            .iter()
            .filter_map(|step| step.strip_prefix("CO-ROUTINE "))
            .collect();
        // It looks at what one instance has, which is bounded: the names that it waits for, its messages, its children.
        let looks_around = sql == around::AROUND;
        for step in &steps {
            let is_found = |table: &str| {
                let alias =
                    |one: &&str| **one == *table || sql.contains(&format!("{one} {table} "));
                table == "CONSTANT ROW"
                    || looks_around && table.starts_with("json_each ")
                    || found.iter().any(alias)
            };
            assert!(
                step.strip_prefix("SCAN ").is_none_or(is_found),
                "{sql}\nreads a whole table:\n{whole}"
            );
            assert!(
                looks_around || !step.contains("TEMP B-TREE"),
                "{sql}\nsorts:\n{whole}"
            );
        }
    }
}

#[test]
fn hot_statements_use_their_index_on_new_tables() {
    // rule 6.2
    all_by_their_index(&filled(0));
}

#[test]
fn hot_statements_use_their_index_on_tables_without_statistics() {
    // rule 6.2
    all_by_their_index(&filled(2_000));
}

#[test]
fn hot_statements_use_their_index_whatever_analyze_has_found() {
    // rule 6.2
    for rows in [3, 2_000] {
        let conn = filled(rows);
        conn.execute_batch("analyze").unwrap();
        all_by_their_index(&conn);
    }
}

#[test]
fn a_claim_reads_in_order_and_only_in_the_index_it_walks() {
    // rule 6.2: a lane is an equality on the index, and what is read comes sorted.
    let conn = filled(100);
    let one = plan(&conn, &claim::find_in(1, claim::CANDIDATE));
    assert_eq!(
        one,
        [
            "SEARCH abide_instances USING INDEX abide_claimable (lane=?)",
            // The build of the worker, looked up when a row is met that some build could not run (rule 12.4).
            "SCALAR SUBQUERY 1",
            "SEARCH w USING INTEGER PRIMARY KEY (rowid=?)",
        ]
    );
    let several = plan(&conn, &claim::find_in(3, claim::CANDIDATE)).join("\n");
    assert!(several.contains("MERGE (UNION ALL)"), "{several}");
}

#[test]
fn what_a_run_a_chain_or_a_key_has_is_listed_by_their_indexes() {
    let (instance, chain) = (Some(InstanceId(1)), Some(InstanceId(1)));
    let key = Some(Key::new("k").unwrap());
    let of_run = "abide_signals_of_run (instance_id=?";
    let commands = |filter: CommandFilter| commands::listing(&filter, Some(CommandId(9)), 5).0;
    let runs = Filter {
        chain,
        ..Filter::default()
    };
    let listings = [
        (
            query::listing(&runs, None, 5).0,
            vec!["abide_chain (first_id=?)"],
        ),
        (
            commands(CommandFilter {
                instance,
                ..CommandFilter::default()
            }),
            vec![of_run],
        ),
        (
            commands(CommandFilter {
                chain,
                ..CommandFilter::default()
            }),
            vec![of_run, "abide_chain (first_id=?)"],
        ),
        (
            commands(CommandFilter {
                key,
                ..CommandFilter::default()
            }),
            vec![
                of_run,
                "abide_key (key=?)",
                "abide_signals_held (key=?",
                "abide_signals_adrift",
            ],
        ),
    ];
    for rows in [0, 3, 2_000] {
        let conn = filled(rows);
        for analyzed in [false, true] {
            if analyzed {
                conn.execute_batch("analyze").unwrap();
            }
            for (sql, indexes) in &listings {
                let steps = plan(&conn, sql);
                let whole = steps.join("\n");
                for index in indexes {
                    assert!(
                        whole.contains(index),
                        "{sql}\nis not served by {index}:\n{whole}"
                    );
                }
            }
        }
    }
}

#[test]
fn waits_are_listed_in_order() {
    // rule 14.7
    let filters = [
        WaiterFilter::default(),
        WaiterFilter {
            event_type: Some(Name::new("type1").unwrap()),
            ..WaiterFilter::default()
        },
        WaiterFilter {
            instance: Some(InstanceId(7)),
            ..WaiterFilter::default()
        },
    ];
    for rows in [0, 3, 2_000] {
        let conn = filled(rows);
        for analyzed in [false, true] {
            if analyzed {
                conn.execute_batch("analyze").unwrap();
            }
            for filter in &filters {
                let (sql, _) = waiters::listing(filter, Some((InstanceId(5), 1)), 10);
                let steps = plan(&conn, &sql).join("\n");
                let found = "SEARCH one USING PRIMARY KEY (";
                assert!(steps.contains(found), "{sql}\n{steps}");
                let first = "SEARCH other USING PRIMARY KEY (instance_id=? AND place=?)";
                assert!(steps.contains(first), "{sql}\n{steps}");
                assert!(!steps.contains("TEMP B-TREE"), "{sql}\n{steps}");
            }
        }
    }
}

#[test]
fn depths_are_counted_without_looking_at_what_has_finished() {
    let conn = filled(100);
    for step in plan(&conn, query::DEPTHS) {
        let reads =
            step.starts_with("SCAN abide_instances") || step.starts_with("SEARCH abide_instances");
        assert!(!reads || step.contains("INDEX abide_"), "{step}");
    }
    let lapse = plan(&conn, query::NEXT_LAPSE).join("\n");
    assert!(
        lapse.contains("COVERING INDEX abide_leased") && !lapse.contains("TEMP"),
        "{lapse}"
    );
    let next = plan(&conn, query::NEXT_DUE).join("\n");
    assert!(
        next.contains("abide_parked") && !next.contains("TEMP"),
        "{next}"
    );
}
