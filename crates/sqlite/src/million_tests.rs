//! Claiming from a table of a million rows costs as much as from one of a thousand. The cost is counted in steps
//! of SQLite's machine: a row that is stepped over shows, and how fast this computer is does not.

use abide_core::model::{
    Closing, CommandId, CommandStatus, EventSequence, InstanceId, Json, Lane, Name, Sequence,
    Timestamp, WaitId, Waiter, WorkerId,
};
use abide_core::rules::commit::InboxNeeds;
use abide_kernel::{ClaimRequest, EventLookup, Forget, NewEvent, PathId, Span, Term};
use rusqlite::{Connection, StatementStatus, params};

use crate::columns;
use crate::plans_tests::all_by_their_index;
use crate::sql::{claim, commands, events, inbox, load, lookback, sweep, waiters, workers};

const QUEUES: [&str; 4] = ["default", "mail", "night", "slow"];
/// The last one is served by no worker.
const LANES: [(&str, u32); 3] = [("m", 1), ("m", 2), ("unserved", 1)];
/// Number of instances that are claimed at once.
const BATCH: usize = 100;
/// The time in these tables, and a time that is far ahead of it.
const NOW: i64 = 1_767_225_600_000_000;
const FAR: i64 = 2 * NOW;

/// Number of rows of a table.
struct Rows {
    finished: u32,
    scheduled: u32,
    live: u32,
}

const THOUSAND: Rows = Rows {
    finished: 0,
    scheduled: 100,
    live: 900,
};
const MILLION: Rows = Rows {
    finished: 700_000,
    scheduled: 200_000,
    live: 100_000,
};

/// Tables with so many rows, spread evenly over all lanes of all queues.
fn filled(rows: &Rows) -> Connection {
    let mut conn = Connection::open_in_memory().unwrap();
    for migration in crate::migrations() {
        conn.execute_batch(migration.sql).unwrap();
    }
    // Work that is due far ahead, and work that no worker serves, is more urgent than all that can be claimed.
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_instances (
            status, ready_at, wake_at, finished_at, lane, priority, due_at, epoch, settled, step, step_seq, attempt,
            cause, history_seq, parent_barrier, key, scopes, taken, queue, machine, version, kind, first_step,
            created_at, updated_at, state)
        select ?2, iif(?2 = 2, ?3, null), iif(?2 = 1, ?3, null), iif(?2 = 6, ?3, null), ?4,
               iif(?2 = 1 or ?6 = 'unserved', -32768, i % 3), ?3, 0, 0, 'step', 1, 0, 0, 1, 0,
               iif(i % 50 = 0, ?2 || ?4 || '-' || i, null), 63, iif(i % 50 = 0, ?2 <> 6, null), ?5, ?6, ?7, 0, 'step',
               ?3, ?3, '{\"some\":\"state\"}'
        from n";
    let transaction = conn.transaction().unwrap();
    for (status, count, at) in [
        (6, rows.finished, NOW - 1),
        (1, rows.scheduled, FAR),
        (2, rows.live, NOW - 1),
    ] {
        let share = count.div_ceil((QUEUES.len() * LANES.len()) as u32);
        for queue in QUEUES.iter().filter(|_| share > 0) {
            for (machine, version) in LANES {
                let lane = columns::lane(&name(queue), &name(machine), version);
                let values = params![share, status, at, lane, queue, machine, version];
                transaction.execute(fill, values).unwrap();
            }
        }
    }
    transaction.commit().unwrap();
    conn
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The lanes that are served.
fn served() -> Vec<Lane> {
    let lane = |(machine, version): &(&str, u32)| Lane {
        machine: name(machine),
        version: *version,
    };
    LANES.iter().take(2).map(lane).collect()
}

/// The steps that were made since this was last called, by a statement which must neither scan nor sort.
fn steps(conn: &Connection, sql: &str) -> i32 {
    let statement = conn.prepare_cached(sql).unwrap();
    for what in [StatementStatus::FullscanStep, StatementStatus::Sort] {
        assert_eq!(statement.reset_status(what), 0, "it scans or sorts: {sql}");
    }
    statement.reset_status(StatementStatus::VmStep)
}

/// A claim of a batch.
fn batch() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId(1),
        queue: name("default"),
        lanes: served(),
        limit: BATCH,
        lease: None,
    }
}

/// Cost of claiming a batch.
fn cost_of_a_claim(conn: &Connection) -> i32 {
    let request = batch();
    let now = Timestamp::from_micros(NOW);
    let (claimed, _) = claim::claim(conn, &request, usize::MAX, now, |_| ()).unwrap();
    assert_eq!(claimed.len(), BATCH);
    let found = steps(conn, &claim::find_in(2, claim::CANDIDATE));
    let taken = steps(conn, claim::TAKE) + steps(conn, claim::TAKE_GUARDED);
    assert!(found > 0 && taken > 0, "both are counted");
    found + taken
}

#[test]
fn a_claim_reads_no_further_than_its_bytes() {
    // rule 16.4: what does not fit is not read, however much is asked for. Each state has 16 bytes.
    let now = Timestamp::from_micros(NOW);
    let cost = |limit, most| {
        let conn = filled(&THOUSAND);
        let request = ClaimRequest {
            worker: WorkerId(1),
            queue: name("default"),
            lanes: served(),
            limit,
            lease: None,
        };
        let (claimed, is_more) = claim::claim(&conn, &request, most, now, |_| ()).unwrap();
        let found = steps(&conn, &claim::find_in(2, claim::CANDIDATE));
        (claimed.len(), is_more, found)
    };
    let (few, is_more, cost_of_few) = cost(11, usize::MAX);
    assert_eq!((few, is_more), (11, false));
    let (bounded, is_more, cost_of_bounded) = cost(100, 10 * 16);
    assert_eq!((bounded, is_more), (10, true));
    assert!(
        cost_of_bounded <= cost_of_few,
        "{cost_of_bounded} steps, and {cost_of_few} for as many rows"
    );
    let (all, is_more, _) = cost(100, 100 * 16);
    assert_eq!((all, is_more), (100, false));
}

/// Cost of finding how urgent the most urgent is.
fn cost_of_a_peek(conn: &Connection) -> i32 {
    let first = claim::waiting(conn, &name("default"), &served()).unwrap();
    assert!(
        first.is_some_and(|first| first.0 >= 0),
        "{first:?} is not served"
    );
    steps(conn, &claim::find_in(2, claim::ORDER))
}

/// Cost of finding that nothing is due.
fn cost_of_timers(conn: &Connection) -> i32 {
    let due = load::due(conn, Timestamp::from_micros(NOW), 0, BATCH).unwrap();
    assert!(due.is_empty());
    steps(conn, load::DUE)
}

#[test]
fn claiming_from_a_million_rows_costs_what_it_costs_from_a_thousand() {
    // rule 6.2
    let costs: [fn(&Connection) -> i32; 3] = [cost_of_a_claim, cost_of_a_peek, cost_of_timers];
    let small = filled(&THOUSAND);
    let few = costs.map(|cost| cost(&small));
    let large = filled(&MILLION);
    let no_more = |when: &str| {
        all_by_their_index(&large);
        let many = costs.map(|cost| cost(&large));
        for (few, many) in few.into_iter().zip(many) {
            assert!(
                2 * many <= 3 * few,
                "{many} steps in a million rows, {few} in a thousand, {when}"
            );
        }
    };
    no_more("without statistics");
    large.execute_batch("analyze").unwrap();
    no_more("with statistics");
}

/// An inbox with three signals of one name and two updates, and so many of other names; other inboxes, and what is over,
/// are as many again.
fn inboxes(others: u32) -> Connection {
    let conn = filled(&Rows {
        finished: 0,
        scheduled: 0,
        live: 0,
    });
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_signals (
            id, status, kind, instance_id, chain_id, sequence, pending_in, name, received_at, arguments)
        select ?2 + i, ?3, ?4, ?5, ?5, ?2 + i, iif(?3 < 3, ?5, null), ?6, 0, '[]' from n where ?1 > 0";
    for (count, base, status, kind, instance, name) in [
        (others, 0, 1, 0, 1, "another"),
        (others, 100_000, 1, 0, 1, "zebra"),
        (others, 200_000, 3, 0, 1, "paid"),
        (others, 300_000, 1, 0, 2, "paid"),
        (3, 400_000, 1, 0, 1, "paid"),
        (2, 500_000, 2, 1, 1, "add"),
    ] {
        let values = params![count, base, status, kind, instance, name];
        conn.execute(fill, values).unwrap();
    }
    conn
}

/// Cost of finding the messages of an inbox that a step needs, of handing them over, and of ending them.
fn cost_of_messages(conn: &Connection) -> [i32; 4] {
    let one = InstanceId(1);
    let paid = vec![name("paid"), name("paid")];
    let needs = InboxNeeds {
        names: paid.clone(),
        updates: true,
        all: false,
    };
    let found = inbox::pending(conn, &[(one, needs)]).unwrap();
    let ids: Vec<i64> = found.iter().map(|(_, pending)| pending.id.0).collect();
    assert_eq!(ids, [400_001, 400_002, 400_003, 500_001, 500_002]);
    let handed = inbox::awaited(conn, &[(one, paid, Sequence(400_002))]).unwrap();
    assert_eq!(handed.len(), 2);
    let closings = handed.iter().map(|command| Closing {
        id: command.id,
        status: CommandStatus::Applied,
        wait_id: None,
        step_sequence: Some(1),
        operation: None,
        graph_step: None,
        result: None,
        error: None,
    });
    let closings: Vec<Closing> = closings.collect();
    commands::close(conn, &closings, Timestamp::from_micros(NOW)).unwrap();
    assert_eq!(inbox::updates(conn, &[one]).unwrap().len(), 2);
    [
        steps(conn, inbox::NAMED) + steps(conn, inbox::UPDATES),
        steps(conn, inbox::AWAITED),
        steps(conn, commands::CLOSE),
        steps(conn, inbox::FROM_KIND),
    ]
}

#[test]
fn five_thousand_signals_of_other_names_cost_a_look_for_one_nothing() {
    // rule 7.4
    let few = cost_of_messages(&inboxes(1));
    let many = cost_of_messages(&inboxes(5_000));
    assert!(few.iter().all(|steps| *steps > 0), "all are counted");
    assert_eq!(few, many);
}

/// So many waiters of one type under one path, each with a value of its own, one under another path, and as many events
/// that were published long ago.
fn waiting(count: u32) -> Connection {
    let conn = filled(&Rows {
        finished: 0,
        scheduled: 0,
        live: 0,
    });
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_waiters (instance_id, place, value, path, event_type, since, wait_id, conditions)
        select i, 0, 's' || i, 'order.id', 'paid', i, 'wait:' || i, '[]' from n";
    conn.execute(fill, [count]).unwrap();
    let total = "insert into abide_waiter_totals (event_type, total) values ('paid', ?1)";
    conn.execute(total, [count]).unwrap();
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_events (published_at, event_type, event_id, payload)
        select i, 'paid', 'e' || i, '{\"order\":1}' from n";
    conn.execute(fill, [count]).unwrap();
    let path = lookback::add(
        &conn,
        &name("paid"),
        "order",
        16,
        Timestamp::from_micros(NOW),
    );
    let fill = "
        insert into abide_event_terms (path_id, value, sequence, published_at)
        select ?1, 'd' || sequence, sequence, published_at from abide_events";
    conn.execute(fill, [path.unwrap().unwrap().0]).unwrap();
    waiters::open(&conn, &[waiter(0, "")]).unwrap();
    for sql in [waiters::OPEN, waiters::COUNT] {
        steps(&conn, sql);
    }
    conn
}

fn waiter(instance: i64, path: &str) -> Waiter {
    Waiter {
        instance: InstanceId(instance),
        partition: None,
        wait_id: WaitId::stored(format!("wait:{instance}")),
        position: 0,
        event_type: name("paid"),
        path: path.into(),
        value: match path {
            "" => String::new(),
            _ => format!("s{instance}"),
        },
        conditions: Vec::new(),
        since: Timestamp::from_micros(NOW),
        deadline: None,
    }
}

/// Cost of publishing an event that one waiter waits for, of opening and closing one, of counting them, of
/// looking back, and of deleting old ones.
fn cost_of_events(conn: &Connection) -> Vec<i32> {
    let now = Timestamp::from_micros(NOW);
    let event = NewEvent {
        event_type: name("paid"),
        event_id: name("new"),
        payload: Json::null(),
    };
    let mut costs = Vec::new();
    let stored = events::store(conn, &[event.clone(), event], now).unwrap();
    assert_eq!([stored[0].1, stored[1].1], [true, false]);
    costs.push(steps(conn, events::STORE));
    costs.push(steps(conn, events::KNOWN));
    let paths = waiters::paths(conn, &[name("other"), name("paid")]).unwrap();
    let paths: Vec<&str> = paths.iter().map(|(_, path)| path.as_str()).collect();
    assert_eq!(paths, ["", "order.id"]);
    costs.push(steps(conn, waiters::FIRST_PATH));
    costs.push(steps(conn, waiters::NEXT_PATH));
    let probe = |path: &str, value: &str| (name("paid"), path.to_owned(), value.to_owned());
    let probes = [probe("", ""), probe("order.id", "s500")];
    let found = waiters::at(conn, &probes).unwrap();
    let found: Vec<i64> = found.iter().map(|waiter| waiter.instance.0).collect();
    assert_eq!(found, [0, 500]);
    costs.push(steps(conn, waiters::AT));
    waiters::close(conn, &[InstanceId(500)]).unwrap();
    costs.push(steps(conn, waiters::CLOSE));
    waiters::open(conn, &[waiter(500, "order.id")]).unwrap();
    costs.push(steps(conn, waiters::OPEN));
    costs.push(steps(conn, waiters::COUNT));
    assert_eq!(waiters::totals(conn, &[name("paid")]).unwrap().len(), 1);
    costs.push(steps(conn, waiters::TOTAL));
    costs.extend(cost_of_looking_back(conn, stored[0].0));
    let old = Forget::Events(Timestamp::from_micros(900));
    let old = sweep::forget(conn, old, 5).unwrap();
    assert_eq!(old, 5);
    costs.push(steps(conn, events::OLD));
    costs.push(steps(conn, events::DELETE_TERMS));
    let new = stored[0].0.0;
    for table in ["abide_events", "abide_event_terms"] {
        let sql = format!("delete from {table} where sequence = ?1");
        conn.execute(&sql, [new]).unwrap();
    }
    costs
}

/// Cost of indexing an event, of looking back for one of as many as there are, and of reading the newest of them.
fn cost_of_looking_back(conn: &Connection, new: EventSequence) -> Vec<i32> {
    let (paid, mut costs) = (name("paid"), Vec::new());
    let paths = lookback::paths(conn, &[name("other"), paid.clone()]).unwrap();
    assert_eq!(paths, [(paid.clone(), "order".to_owned(), PathId(1))]);
    costs.push(steps(conn, lookback::PATHS));
    let term = Term {
        path: PathId(1),
        value: "d700".to_owned(),
        sequence: new,
        published_at: Timestamp::from_micros(NOW),
    };
    lookback::write(conn, &[term]).unwrap();
    costs.push(steps(conn, lookback::WRITE));
    let lookup = EventLookup {
        event_type: &paid,
        path: "order",
        values: &["d700".to_owned(), "d999999999".to_owned()],
    };
    let span = Span {
        below: EventSequence(i64::MAX),
        since: Timestamp::MIN,
        limit: 500,
        bytes: usize::MAX,
    };
    let (_, page) = lookback::look_up(conn, &lookup, span).unwrap().unwrap();
    let found: Vec<EventSequence> = page.events.iter().map(|one| one.sequence).collect();
    assert_eq!(found, [new, EventSequence(700)]);
    costs.push(steps(conn, lookback::PATH));
    costs.push(steps(conn, lookback::TERMS));
    costs.push(steps(conn, events::BY_SEQUENCE));
    let page = lookback::newest(conn, &paid, span).unwrap();
    assert_eq!((page.count, page.events.len()), (500, 500));
    costs.push(steps(conn, events::NEWEST_OF_TYPE));
    costs
}

#[test]
fn publishing_to_one_of_a_million_waiters_costs_what_it_costs_among_a_thousand() {
    // rules 14.4, 14.6 and 14.7
    let few = cost_of_events(&waiting(1_000));
    assert!(few.iter().all(|steps| *steps > 0), "all are counted");
    let large = waiting(1_000_000);
    assert_eq!(cost_of_events(&large), few, "without statistics");
    large.execute_batch("analyze").unwrap();
    assert_eq!(cost_of_events(&large), few, "with statistics");
    let totals = waiters::totals(&large, &[name("paid")]).unwrap();
    let totals: Vec<_> = totals
        .into_iter()
        .map(|(of, total)| (of, total.waiters))
        .collect();
    assert_eq!(totals, [(name("paid"), 1_000_001)]);
}

#[test]
fn numbers_are_given_out_in_one_step_however_many_they_are() {
    let conn = inboxes(1);
    let first = commands::number(&conn, 1).unwrap();
    let few = steps(&conn, commands::NUMBER);
    let thousand = commands::number(&conn, 1_000).unwrap();
    assert_eq!(steps(&conn, commands::NUMBER), few);
    assert_eq!(first, [CommandId(1)]);
    assert_eq!(
        thousand,
        (2..=1_001).map(CommandId).collect::<Vec<CommandId>>()
    );
}

#[test]
fn taking_back_costs_the_same_with_many_dead_workers_as_with_few() {
    // rule 5.3: they were kept for a day, and cost a statement each per heartbeat and engine.
    let cost = |dead: u32| {
        let conn = filled(&THOUSAND);
        let fill = "
            with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
            insert into abide_workers (name, lease_until, started_at, queues, lanes)
            select 'w' || i, iif(i = 1, ?2, 0), 0, '[]', '[]' from n";
        conn.execute(fill, params![dead, FAR]).unwrap();
        let request = batch();
        let now = Timestamp::from_micros(NOW);
        claim::claim(&conn, &request, usize::MAX, now, |_| ()).unwrap();
        assert_eq!(workers::dead_holders(&conn, now).unwrap(), []);
        let statement = conn.prepare_cached(workers::DEAD_HOLDERS).unwrap();
        statement.get_status(StatementStatus::VmStep)
    };
    let (few, many) = (cost(3), cost(150_000));
    assert!(few > 0 && many <= few, "{few} steps became {many}");
}
