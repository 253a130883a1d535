//! What claiming costs in a table of a million rows is what it costs in one of a thousand. The cost is counted in steps
//! of SQLite's machine: a row that is stepped over shows, and how fast this computer is does not.

use abide_core::model::{
    Closing, CommandId, CommandStatus, InstanceId, Lane, Name, Sequence, Timestamp, WorkerId,
};
use abide_core::rules::commit::Look;
use abide_kernel::ClaimRequest;
use rusqlite::{Connection, StatementStatus, params};

use crate::columns;
use crate::plans_tests::all_by_their_index;
use crate::sql::{claim, commands, inbox, load};

const QUEUES: [&str; 4] = ["default", "mail", "night", "slow"];
/// The last one is served by nobody.
const LANES: [(&str, u32); 3] = [("m", 1), ("m", 2), ("unserved", 1)];
/// How many are claimed at once.
const BATCH: usize = 100;
/// The time in these tables, and a time that is far ahead of it.
const NOW: i64 = 1_767_225_600_000_000;
const FAR: i64 = 2 * NOW;

/// How many rows a table has.
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
    // What is due far ahead and what nobody serves is more urgent than all that can be claimed.
    let fill = "
        with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
        insert into abide_instances (
            status, ready_at, wake_at, finished_at, lane, priority, due_at, epoch, settled, step, step_seq, attempt,
            cause, timed_out, history_seq, parent_barrier, key, scopes, taken, queue, machine, version, kind, first_step,
            created_at, updated_at, state)
        select ?2, iif(?2 = 2, ?3, null), iif(?2 = 1, ?3, null), iif(?2 = 6, ?3, null), ?4,
               iif(?2 = 1 or ?6 = 'unserved', -32768, i % 3), ?3, 0, 0, 'step', 1, 0, 0, 0, 1, 0,
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

/// The steps that were made since this was last asked, by a statement which must neither scan nor sort.
fn steps(conn: &Connection, sql: &str) -> i32 {
    let statement = conn.prepare_cached(sql).unwrap();
    for what in [StatementStatus::FullscanStep, StatementStatus::Sort] {
        assert_eq!(statement.reset_status(what), 0, "it scans or sorts: {sql}");
    }
    statement.reset_status(StatementStatus::VmStep)
}

/// What it costs to claim a batch.
fn cost_of_a_claim(conn: &Connection) -> i32 {
    let request = ClaimRequest {
        worker: WorkerId(1),
        queue: name("default"),
        lanes: served(),
        limit: BATCH,
    };
    let now = Timestamp::from_micros(NOW);
    let claimed = claim::claim(conn, &request, now, |_| ()).unwrap();
    assert_eq!(claimed.len(), BATCH);
    let found = steps(conn, &claim::find_in(2, claim::CANDIDATE));
    let taken = steps(conn, claim::TAKE) + steps(conn, claim::TAKE_GUARDED);
    assert!(found > 0 && taken > 0, "both are counted");
    found + taken
}

/// What it costs to see how urgent the most urgent is.
fn cost_of_a_look(conn: &Connection) -> i32 {
    let first = claim::waiting(conn, &name("default"), &served()).unwrap();
    assert!(
        first.is_some_and(|first| first.0 >= 0),
        "{first:?} is not served"
    );
    steps(conn, &claim::find_in(2, claim::ORDER))
}

/// What it costs to see that nothing is due.
fn cost_of_timers(conn: &Connection) -> i32 {
    let due = load::due(conn, Timestamp::from_micros(NOW), BATCH).unwrap();
    assert!(due.is_empty());
    steps(conn, load::DUE)
}

#[test]
fn claiming_from_a_million_rows_costs_what_it_costs_from_a_thousand() {
    // rule 6.2
    let costs: [fn(&Connection) -> i32; 3] = [cost_of_a_claim, cost_of_a_look, cost_of_timers];
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

/// What it costs to see what of an inbox a step has to know, to hand it over, and to end it.
fn cost_of_messages(conn: &Connection) -> [i32; 4] {
    let one = InstanceId(1);
    let paid = vec![name("paid"), name("paid")];
    let look = Look {
        names: paid.clone(),
        updates: true,
        all: false,
    };
    let found = inbox::pending(conn, &[(one, look)]).unwrap();
    let ids: Vec<i64> = found.iter().map(|(_, pending)| pending.id.0).collect();
    assert_eq!(ids, [400_001, 400_002, 400_003, 500_001, 500_002]);
    let handed = inbox::awaited(conn, &[(one, paid, Sequence(400_002))]).unwrap();
    assert_eq!(handed.len(), 2);
    let closings = handed.iter().map(|command| Closing {
        id: command.id,
        status: CommandStatus::Applied,
        wait_id: None,
        step_sequence: Some(1),
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
