//! The plans of all hot statements, as the server really executed them: no backlog, nothing that is scheduled and
//! nothing that has finished makes them slower.
//!
//! The server logs the plan of every statement it executes (`auto_explain`); the tests call everything the store
//! can do, and read the log.

mod events;
mod everything;
mod log;
mod messages;

use std::collections::BTreeMap;

use crate::common::{self, claim, open, register, start, start_all};
use abide_kernel::Store;
use abide_pgtest::psql;
use abide_postgres::statements;
use everything::everything;
use log::{Plan, PlanLog};

/// Which index each hot statement must use.
const INDEXES: &[(&str, &[&str])] = &[
    (
        "holders",
        &["instances_key_taken", "instances_unique_key_taken"],
    ),
    ("newest_of_keys", &["instances_key"]),
    ("lock", &["instances_pkey"]),
    ("lock_free", &["instances_pkey"]),
    ("due", &["instances_parked"]),
    ("lapsed", &["instances_leased"]),
    ("policies", &["instances_pkey"]),
    ("lease", &["instances_pkey"]),
    ("held", &["instances_held"]),
    ("held_by", &["instances_held"]),
    ("dead_holders", &["instances_held"]),
    ("forget_workers", &[]),
    ("advance", &["instances_pkey"]),
    ("finish", &["instances_pkey"]),
    ("move", &["instances_pkey"]),
    ("claim", &["instances_claimable"]),
    ("claim_lanes", &["instances_claimable"]),
    ("claim_within", &["instances_claimable"]),
    ("partitions_of", &["instances_pkey"]),
    ("waiting", &["instances_claimable"]),
    ("children", &["instances_children"]),
    ("children_bytes", &["instances_children"]),
    ("fronts", &["instances_partition_front"]),
    ("firsts", &["instances_partition_queue"]),
    ("reorder", &["instances_pkey"]),
    ("expiring", &["instances_finished"]),
    ("kin", &["instances_pkey"]),
    ("named_contracts", &["instances_pkey"]),
    ("expired_children", &["instances_children"]),
    ("trim_history", &["history_pkey"]),
    ("trim_signals", &["signals_run"]),
    ("forget_chains", &["signals_dedup"]),
    ("delete", &["instances_pkey"]),
    ("by_id", &["instances_pkey"]),
    ("by_key", &["instances_key"]),
    ("list", &["instances_pkey"]),
    ("move_history", &["history_pkey"]),
    ("history", &["history_pkey"]),
    ("children_above", &["instances_children"]),
    ("endings", &["instances_pkey"]),
    ("next_due", &["instances_parked", "instances_leased"]),
    ("open", &["instances_pkey"]),
    ("supersede", &["instances_pkey"]),
    ("adopt", &["instances_children", "instances_pkey"]),
    (
        "key_holders",
        &[
            "instances_pkey",
            "instances_key_taken",
            "instances_unique_key_taken",
        ],
    ),
    ("give_up_keys", &["instances_pkey"]),
    ("live_children", &["instances_children"]),
    ("blocked", &["instances_blocked"]),
    ("above", &["instances_pkey"]),
    ("around", &["instances_pkey", "signals_pending"]),
    ("copies", &["instances_pkey"]),
    ("find", &["instances_pkey", "instances_key"]),
    ("newest", &["instances_chain", "instances_pkey"]),
    ("deduped", &["signals_dedup"]),
    ("held_signals", &["signals_held"]),
    ("rewrite_commands", &["signals_pkey"]),
    ("close", &["signals_pkey"]),
    ("pending_named", &["signals_pending"]),
    ("pending_all", &["signals_pending"]),
    ("awaited", &["signals_pending"]),
    ("pending_from_kind", &["signals_pending"]),
    ("move_pending", &["signals_pending", "signals_pkey"]),
    ("expire_held", &["signals_hold_until"]),
    ("forget_records", &["signals_lone"]),
    ("commands", &["signals_run"]),
    ("records", &["signals_pkey"]),
    ("known_events", &["events_known"]),
    (
        "look_up",
        &["event_paths_of_type", "event_terms_pkey", "events_pkey"],
    ),
    ("newest_events", &["events_of_type"]),
    ("hold_newest_events", &["events_of_type"]),
    ("add_path", &["event_paths_of_type"]),
    ("forget_paths", &["event_paths_used", "event_paths_pkey"]),
    ("events_above", &["events_of_type", "events_pkey"]),
    (
        "forget_events",
        &["events_published", "events_pkey", "event_terms_of_event"],
    ),
    // By type; by position alone where nearly all are of that type.
    ("events", &[]),
    ("event_paths", &["waiters_found", "event_paths_of_type"]),
    ("waiters", &["waiters_found", "instances_pkey"]),
    (
        "open_waiters",
        &["waiter_totals_of_type", "waiter_totals_pkey"],
    ),
    (
        "close_waiters",
        &[
            "waiters_pkey",
            "waiter_totals_of_type",
            "waiter_totals_pkey",
        ],
    ),
    ("type_totals", &["waiter_totals_of_type", "events_of_type"]),
    ("list_waiters", &["waiters_pkey"]),
    ("recall", &["requests_known"]),
    ("forget_requests", &["requests_created", "requests_pkey"]),
    ("outbox", &["outbox_pkey"]),
    ("hold_outbox", &["outbox_pkey"]),
    ("take_outbox", &["outbox_pkey"]),
    ("refuse_outbox", &["outbox_pkey"]),
    (
        "forget_refused",
        &["outbox_refused_at", "outbox_refused_pkey"],
    ),
];

/// Hot statements that take the first rows of an order. A bitmap is made of all rows before the first one comes out.
const FIRST_COME: &[&str] = &[
    "claim",
    "claim_lanes",
    "claim_within",
    "waiting",
    "due",
    "lapsed",
    "held",
    "held_by",
    "dead_holders",
    "firsts",
    "expiring",
    "next_due",
    "by_key",
    "list",
    "blocked",
    "above",
    "newest",
    "expire_held",
    "forget_records",
    "events",
    "look_up",
    "newest_events",
    "hold_newest_events",
    "event_paths",
    "list_waiters",
    "outbox",
];

/// Hot statements that only insert.
const INSERTS: &[&str] = &[
    "insert",
    "insert_keyed",
    "append",
    "insert_commands",
    "store_events",
    "write_terms",
];

/// Tables as long as there are processes, or machines: reading one as a whole may be the least.
const SMALL: &[&str] = &["workers", "machines"];

/// Looks at every plan of a statement that there is a rule for; which statements were seen.
fn check(plans: &[Plan], when: &str) -> BTreeMap<&'static str, usize> {
    let mut seen = BTreeMap::new();
    for plan in plans {
        let Some((name, _)) = statements::ALL.iter().find(|(_, sql)| *sql == plan.sql) else {
            continue;
        };
        let hot = INDEXES.iter().find(|(hot, _)| hot == name);
        if hot.is_none() && !INSERTS.contains(name) {
            continue;
        }
        *seen.entry(*name).or_default() += 1;
        let nodes = plan.nodes();
        for node in &nodes {
            let scan = node["Node Type"].as_str().unwrap();
            // Of a type there are at most 16 paths, all of which are wanted.
            let few = node["Relation Name"] == "event_paths" && *name == "event_paths";
            let bitmap = scan == "Bitmap Heap Scan" && FIRST_COME.contains(name) && !few;
            let small = SMALL.iter().any(|table| node["Relation Name"] == *table);
            let bad = (scan == "Seq Scan" && !small) || bitmap;
            assert!(!bad, "{when}: {name} has a {scan}:\n{plan}");
        }
        assert!(!plan.has_jit(), "{when}: {name} is compiled:\n{plan}");
        for index in hot.into_iter().flat_map(|(_, indexes)| *indexes) {
            let used = nodes.iter().any(|node| node["Index Name"] == *index);
            let left_out = *name == "find" && *index == "instances_key" && plan.finds_by_id();
            assert!(
                used || left_out,
                "{when}: {name} does not use {index}:\n{plan}"
            );
        }
    }
    seen
}

/// A million rows: 700,000 have finished, 150,000 are scheduled far ahead and would be most urgent, 50,000 of one lane
/// are blocked, 100,000 are live, of which a fifth is in a lane that no worker serves and more urgent than all others.
const MILLION: &str = "\
insert into abide.instances (created_at, updated_at, version, key_scope, unique_scope, kind, status, \
    priority, cause, behind, history, history_seq, queue, machine, step, first_step, state, due_at, \
    finished_at, key, unique_key) \
select now(), now(), 1, 63, 63, 0, \
    case when i <= 700000 then 6 when i <= 900000 then 1 else 2 end, \
    case when i <= 700000 then 0 when i <= 900000 then -100 when i % 5 = 0 then -50 else i % 3 end, \
    0, false, true, 1, \
    case when i % 5 = 1 then 'other' else 'default' end, \
    case when i between 850001 and 900000 then 'stuck' when i % 5 = 0 then 'nobody' \
        when i % 5 = 2 then 'n' else 'm' end, 'begin', 'begin', '{\"n\":1}', \
    case when i <= 700000 or i between 850001 and 900000 then null \
        when i <= 900000 then now() + interval '1 year' \
        else now() - interval '1 minute' end, \
    case when i <= 700000 then now() - interval '1 day' end, \
    case when i % 10 = 0 then 'k' || i end, \
    case when i % 10 = 1 then decode(lpad(to_hex(i), 8, '0'), 'hex') end \
from generate_series(1, 1000000) i";

/// A million messages: 900,000 that were taken long ago, 5,000 pending with each of ten instances, never claimed,
/// and 50,000 that no instance has, half of them held for keys.
const MESSAGES: &str = "\
insert into abide.signals (instance_id, chain_id, message_sequence, received_at, hold_until, \
    closed_at, kind, status, name, key, dedup_key, arguments) \
select case when i <= 900000 then i when i <= 950000 then 950001 + i % 10 end, \
    case when i <= 900000 then i when i <= 950000 then 950001 + i % 10 end, \
    case when i <= 900000 then 1 when i <= 950000 then (i - 900000 + 9) / 10 end, \
    now() - interval '1 day', case when i > 975000 then now() + interval '1 year' end, \
    case when i <= 900000 or i between 950001 and 975000 then now() end, 0, \
    case when i <= 900000 then 3 when i <= 950000 then 1 when i <= 975000 then 5 else 0 end, \
    case when i % 2 = 0 then 'paid' else 'sent' end, case when i > 950000 then 'h' || i end, \
    case when i <= 900000 then 'd' end, '[1]' \
from generate_series(1, 1000000) i; \
update abide.instances set status = 4, due_at = null, extra = json_build_object( \
        'awaits', json_build_object('kind', 'signal', 'names', json_build_array('other'), 'since_us', 0), \
        'inbox', json_build_object('sequence', 5000, 'cursor', 0, 'signals', 5000, 'updates', 0, 'handed', 0)) \
    where id between 950001 and 950010";

/// A million waiters of one type, each for another order, as many events of that type, all of which are indexed, and some
/// of many other types.
const EVENTS: &str = "\
insert into abide.waiters (instance_id, since, place, event_type, path, value, wait_id, conditions) \
select 100000000 + i, now(), 0, 'paid', 'order', 's-' || i, 'w' || i, '[]' \
from generate_series(1, 1000000) i; \
insert into abide.waiters (instance_id, since, place, event_type, path, value, wait_id, conditions) \
select 200000000 + i, now(), 0, 'type' || i, '', '', 'w' || i, '[]' \
from generate_series(1, 20000) i; \
insert into abide.waiter_totals (event_type, total) values ('paid', 1000000); \
insert into abide.waiter_totals (event_type, total) \
select 'type' || i, 1 from generate_series(1, 20000) i; \
insert into abide.events (published_at, event_type, event_id, payload) \
select now() - interval '1 day', 'paid', 'e' || i, '{\"order\":' || i || '}' \
from generate_series(1, 1000000) i; \
insert into abide.event_paths (used_at, event_type, path) \
select now() - interval '1 day', 'type' || i, 'order' from generate_series(1, 20000) i; \
insert into abide.event_paths (used_at, event_type, path) values (now(), 'paid', 'order'); \
insert into abide.event_terms (path_id, value, sequence, published_at) \
select p.id, 'd' || right(e.event_id, -1), e.sequence, e.published_at \
from abide.event_paths p join abide.events e using (event_type)";

/// A million requests that were carried out today, of a hundred callers.
const REQUESTS: &str = "\
insert into abide.requests (created_at, caller, key, part, fingerprint, answer) \
select now() - interval '1 hour', 'caller' || i % 100, 'r' || i, 0, 'f', '[]' \
from generate_series(1, 1000000) i";

/// Many requests that wait in the outbox, and many that were refused.
const OUTBOX: &str = "\
insert into abide.outbox (request) \
select '{\"publish\":{\"type\":\"seen\"}}' from generate_series(1, 200000); \
insert into abide.outbox_refused (outbox_id, created_at, refused_at, role, reason, problem, request) \
select i, now(), now(), 'app', 'bad_request', 'not JSON', '{' from generate_series(1, 200000) i";

/// A million waiters of a type are the most there may be, unless configured otherwise.
fn for_more_than_a_million() -> abide_kernel::model::Limits {
    abide_kernel::model::Limits {
        waiters_per_type: 2_000_000,
        ..abide_kernel::model::Limits::default()
    }
}

/// All that needs a million rows, over one database that is filled once: filling it takes longer than all that is asked of it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_reads_more_of_a_million_rows_than_it_must() {
    let log = PlanLog::start();
    let full = log.server.fresh_database();
    open(&full).await.close().await;
    for rows in [MILLION, MESSAGES, EVENTS, REQUESTS, OUTBOX] {
        log.fill(&full, rows);
    }
    let copy = log.copy(&full);
    claiming_costs_the_same_however_much_there_is(&log, &copy).await;
    finding_one_of_a_million_waiters_costs_what_it_costs_among_a_thousand(&log, &copy).await;
    log.remove(&copy);
    no_plan_reads_more_than_it_must(&log, &full).await;
}

async fn no_plan_reads_more_than_it_must(log: &PlanLog, url: &str) {
    // rules 6.2, 7.1, 14.4, 16.2
    let options = abide_postgres::Options {
        limits: for_more_than_a_million(),
        ..abide_postgres::Options::default()
    };
    let connected = abide_postgres::Postgres::connect(url, options).await;
    let store = connected.unwrap();
    for (when, prepare) in [
        ("before any statistics", ""),
        ("with statistics", "analyze"),
    ] {
        psql(url, prepare);
        for batch in [1, 100, 500] {
            log.skip();
            everything(&store, url, batch).await;
            let when = format!("{when}, {batch} at a time");
            let seen = check(&log.read(), &when);
            let hot = INDEXES.iter().map(|(name, _)| name).chain(INSERTS);
            let missing: Vec<_> = hot.filter(|name| !seen.contains_key(*name)).collect();
            assert!(
                missing.is_empty(),
                "{when}: these were not executed: {missing:?}"
            );
        }
    }
    store.close().await;
}

async fn claiming_costs_the_same_however_much_there_is(log: &PlanLog, url: &str) {
    // rule 6.2: counted in pages touched, which do not depend on what else the machine does.
    let store = open(&log.server.fresh_database()).await;
    start_all(
        &store,
        (0..1000).map(|n| start(["m", "n"][n % 2])).collect(),
    )
    .await;
    let with_little = [
        pages_of_claims(log, &store, "claim", &["m"]).await,
        pages_of_claims(log, &store, "claim_lanes", &["m", "n"]).await,
    ];
    store.close().await;

    let store = open(url).await;
    for prepare in ["", "analyze abide.instances"] {
        psql(url, prepare);
        let with_much = [
            pages_of_claims(log, &store, "claim", &["m"]).await,
            pages_of_claims(log, &store, "claim_lanes", &["m", "n"]).await,
        ];
        println!("pages to claim 100: of 1,000 {with_little:?}, of 1,000,000 {with_much:?}");
        for (much, little) in with_much.into_iter().zip(with_little) {
            assert!(
                much * 2 <= little * 3,
                "{much} pages of a million, {little} of a thousand"
            );
        }
    }
    store.close().await;
}

/// Number of pages that are touched to claim a hundred: the median of three claims.
async fn pages_of_claims(
    log: &PlanLog,
    store: &abide_postgres::Postgres,
    name: &str,
    lanes: &[&str],
) -> u64 {
    let worker = register(store, "w").await;
    log.skip();
    for _ in 0..3 {
        assert_eq!(claim(store, worker, lanes, 100).await.len(), 100);
    }
    let mut pages: Vec<u64> = log
        .read()
        .iter()
        .filter(|plan| plan.is_of(name))
        .map(Plan::pages)
        .collect();
    assert_eq!(pages.len(), 3);
    pages.sort_unstable();
    pages[1]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_was_just_filled_is_read_as_well() {
    // rule 6.2
    let log = PlanLog::start();
    let url = log.server.fresh_database();
    let store = open(&url).await;
    // Statistics of an empty table are the worst there are.
    psql(&url, "analyze");
    start_all(&store, vec![start("m"); 100_000]).await;
    log.skip();
    let worker = register(&store, "w").await;
    for _ in 0..3 {
        let claimed = claim(&store, worker, &["m"], 500).await;
        common::commit_all(&store, claimed.into_iter().map(common::done).collect()).await;
    }
    let seen = check(&log.read(), "just filled");
    assert_eq!((seen["claim"], seen["lock"], seen["finish"]), (3, 3, 3));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_under_other_names_costs_nothing() {
    // rules 7.2 and 7.4
    let log = PlanLog::start();
    let url = log.server.fresh_database();
    // One connection: the first use of a statement on another reads the catalogue too.
    let options = abide_postgres::Options {
        pool_size: 1,
        ..abide_postgres::Options::default()
    };
    let connected = abide_postgres::Postgres::connect(&url, options).await;
    let store = connected.unwrap();
    let worker = register(&store, "w").await;
    let id = common::parked(&store, worker, start("m"), &["paid"]).await;
    let others = (0..4_999).map(|n| common::signal(id, &format!("other{}", n % 7), "1"));
    common::deliver(&store, others.collect()).await;
    for prepare in ["", "analyze"] {
        psql(&url, prepare);
        log.skip();
        common::deliver(&store, vec![common::signal(id, "paid", "1")]).await;
        let claimed = claim(&store, worker, &["m"], 1).await.remove(0);
        assert_eq!(claimed.awaited.len(), 1);
        let moved = common::next(claimed, "more");
        let abide_kernel::model::Committed::Kept(kept, _) =
            common::commit_all(&store, vec![moved]).await.remove(0)
        else {
            panic!()
        };
        let parks = common::wait(common::going_on(kept), &["paid"], "woken");
        common::commit_all(&store, vec![parks]).await;
        let plans = log.read();
        for name in ["awaited", "pending_named", "close", "find", "lock"] {
            let mut pages = plans.iter().filter(|plan| plan.is_of(name));
            let most = pages.by_ref().map(Plan::pages).max().unwrap();
            println!("{name}: {most} pages");
            assert!(most < 30, "{name} touches {most} pages");
        }
    }
    store.close().await;
}

async fn finding_one_of_a_million_waiters_costs_what_it_costs_among_a_thousand(
    log: &PlanLog,
    full: &str,
) {
    // rules 14.4, 14.6 and 14.7: counted in pages touched.
    let small = log.server.fresh_database();
    open(&small).await.close().await;
    log.fill(&small, &EVENTS.replace("1000000)", "1000)"));
    let mut with = Vec::new();
    for (url, count) in [(small.as_str(), 1_000), (full, 1_000_000)] {
        // One connection: the first use of a statement on another reads the catalogue too.
        let options = abide_postgres::Options {
            pool_size: 1,
            limits: for_more_than_a_million(),
            ..abide_postgres::Options::default()
        };
        let connected = abide_postgres::Postgres::connect(url, options).await;
        let store = connected.unwrap();
        // All of another type stand at one place, which is most of the table for those who ask how often a value occurs.
        let same = "insert into abide.waiters (instance_id, since, place, event_type, path, value, wait_id, conditions) \
            select 300000000 + i, now(), 0, 'any', '', '', 'w' || i, '[]' from generate_series(1, $) i";
        log.fill(url, &same.replace('$', &count.to_string()));
        for prepare in ["", "analyze"] {
            psql(url, prepare);
            with.push(events::pages(log, &store).await);
        }
        store.close().await;
    }
    let few = with[0].clone();
    println!("pages: {with:?}");
    for pages in &with[1..] {
        for ((name, few), many) in few.iter().zip(pages.values()) {
            // An index of a million has two levels more than one of a thousand; some statements look into several.
            assert!(
                *many <= few + 15,
                "{name}: {many} pages of many, {few} of few"
            );
        }
    }
}
