//! The read side: committed data, read outside any transaction.

use std::collections::HashSet;
use std::pin::pin;

use abide_core::model::{
    BarrierNumber, Child, Command, CommandId, CommandKind, CommandStatus, ContractId, HistoryRow,
    Instance, InstanceId, Json, Key, Lane, Name, Status, Timestamp, WaitKind,
};
use abide_core::sql;
use abide_kernel::{
    CommandFilter, CommandPage, Contracts, Ending, Endings, Error, Filter, HISTORY_BYTES, Listed,
    MachinePage, Page, QueueDepth, Records, Result, Target,
};
use futures_util::TryStreamExt;
use tokio::time::timeout;
use tokio_postgres::{Client, Row, Statement};

use crate::cells::each;
use crate::claim::read_children;
use crate::commands::{
    PENDING_FROM_KIND, command_columns, from_kind_params, in_order, read_commands,
};
use crate::contracts;
use crate::error::{Fate, classify};
use crate::find::of_key;
use crate::instances::{self, INSTANCE_COLUMNS};
use crate::load;
use crate::param::Param;
use crate::pool::{Loan, Pool, overdue};
use crate::prepared;

/// One instance. Index: `instances_pkey`.
pub const BY_ID: &str = sql! {
    "select ", INSTANCE_COLUMNS, " from abide.instances where id = $1"
};

/// The instance that a key refers to. Indexes: `instances_key_taken`, `instances_key`, `instances_pkey`.
pub const BY_KEY: &str = sql! {
    "select ", INSTANCE_COLUMNS, " from abide.instances where id = ", of_key!("$1")
};

/// A page of instances, newest first. Index: `instances_pkey` read backwards, `instances_children` for children of one
/// parent, `instances_key` for keys with a prefix, `instances_chain` for the runs of one chain; the planner removes a
/// filter that is null.
pub const LIST: &str = sql! {
    "select ", INSTANCE_COLUMNS, " from abide.instances \
    where id < $1 and ($2::smallint is null or status = $2) \
        and ($3::text is null or machine = $3) and ($4::text is null or queue = $4) \
        and ($5::text is null or (key is not null and key >= $5 and starts_with(key, $5))) \
        and ($6::bigint is null or parent_id = $6) \
        and ($8::bigint is null or id = $8 or first_id = $8) \
        and (($9::text is null and $10::text is null) \
            or coalesce((extra::json #>> '{aside,status}')::smallint, status) in (@awaiting) \
            or (coalesce((extra::json #>> '{aside,status}')::smallint, status) = @scheduled \
                and extra::json #>> '{awaits,kind}' = 'timer')) \
        and ($9::text is null or extra::json #>> '{awaits,kind}' = $9) \
        and ($10::text is null or (extra::jsonb #> '{awaits,names}') ?| array[$10, 'event:' || $10] \
            or exists (select 1 from jsonb_array_elements(extra::jsonb #> '{awaits,waits}') as w \
                where w ->> 'kind' = 'condition' and w ->> 'name' = $10)) \
    order by id desc limit $7"
};

/// A page of records, newest first. Index: `signals_run` for records of one run, of a chain's runs, and of the runs
/// with a key, with `signals_lone` and `signals_held` for those that belong to no run; otherwise `signals_pkey` read
/// backwards. The planner removes a filter that is null. Records that a chain keeps of deleted runs are in none of
/// these lists.
pub const COMMANDS: &str = sql! {
    "select ", command_columns!(), " from abide.signals s \
    where s.id < $1 and ($2::bigint is null or (s.chain_id = $2 and s.instance_id = any(array( \
            select i.id from abide.instances i where i.id = $2 or i.first_id = $2)))) \
        and ($3::bigint is null or s.instance_id = $3) \
        and ($4::text is null or (s.key = $4 and (s.instance_id = any(array( \
            select i.id from abide.instances i where i.key = $4)) \
            or (s.instance_id is null and s.status <> @held) or s.status = @held))) \
        and ($5::smallint is null or s.kind = $5) and ($6::text is null or s.name = $6) \
        and ($7::smallint is null or s.status = $7) \
    order by s.id desc limit $8"
};

/// Records by id. Index: `signals_pkey`.
pub const RECORDS: &str = sql! {
    "select ", command_columns!(),
    " from abide.signals s where s.id = any((select $1::bigint[])::bigint[]) order by s.id"
};

/// The rows of a history whose last event is after a number. A row has the number of its first event, so the first of
/// them is the last row whose number is at most one more, unless that row ends before: numbers are missing where
/// attempts were folded into a later row. Index: `history_pkey`.
pub const HISTORY: &str = "\
select instance_id, seq, at, events from abide.history \
where instance_id = $1 \
    and (select i.history_seq from abide.instances i where i.id = $1) > $2 \
    and seq >= coalesce(( \
        select case when h.seq > $2 or h.seq + json_array_length(h.events::json) > $2 + 1 then h.seq else $2 + 1 end \
        from abide.history h where h.instance_id = $1 and h.seq <= $2::bigint + 1 order by h.seq desc limit 1), 0) \
order by seq limit $3";

/// The children of one barrier above an id, by id. Index: `instances_children`.
pub const CHILDREN_ABOVE: &str = "\
select parent_id, id, key, machine, status, state, result, last_error \
from abide.instances where parent_id = $1 and parent_barrier = $2 and id > $3 order by id";

/// The statuses of instances, and the results of those that have ended, by id. Index: `instances_pkey`.
pub const ENDINGS: &str = sql!(
    "\
select id, status, case when status >= @first_ended then result end, case when status >= @first_ended then last_error end \
from abide.instances where id = any((select $1::bigint[])::bigint[]) order by id"
);

/// The earliest time at which a row is due or a lease expires. Indexes: `instances_parked` and `instances_leased`, the
/// first entry of each.
pub const NEXT_DUE: &str = sql!(
    "\
select least( \
    (select due_at from abide.instances where status in (@parked) and due_at is not null \
        order by due_at, id limit 1), \
    (select lease_until from abide.instances where status = @executing and lease_until is not null \
        order by lease_until, id limit 1))"
);

/// The number of instances by queue and status. Indexes: `instances_claimable`, `instances_partition_queue`,
/// `instances_held`, `instances_parked` and `instances_reserved`, which together contain all instances that have not
/// ended, and no others.
pub const DEPTHS: &str = sql!(
    "\
select queue, status, waits, count(*), count(*) filter (where blocked), min(ready) from ( \
    select queue, status, null::text as waits, due_at as ready, false as blocked \
        from abide.instances where status = @runnable and not behind \
    union all \
    select queue, status, null, due_at, false from abide.instances \
        where status = @runnable and behind and partition_key is not null \
    union all \
    select queue, status, null, null, false from abide.instances where status = @executing \
    union all \
    select queue, status, case when status <> @scheduled or wait = 'timer' then wait end, null, \
        status = @scheduled and due_at is null \
        from (select queue, status, due_at, extra::json #>> '{awaits,kind}' as wait \
            from abide.instances where status in (@parked)) w \
    union all \
    select queue, status, null, null, false from abide.instances where status = @reserved \
) live group by queue, status, waits order by queue, status, waits"
);

/// Runs a statement outside any transaction of the store.
pub(crate) async fn query(
    client: &Client,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<Vec<Row>> {
    query_prepared(client, None, sql, params).await
}

async fn query_prepared(
    client: &Client,
    prepared: Option<Statement>,
    sql: &'static str,
    params: Vec<Param>,
) -> Result<Vec<Row>> {
    let rows = async {
        let rows = prepared::send(client, prepared, sql, params).await?;
        rows.try_collect().await
    };
    rows.await.map_err(|error| classify(&error, Fate::Open))
}

/// Runs a statement on a connection of the pool; retries on another one if the first was lost.
pub(crate) async fn ask(pool: &Pool, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>> {
    let client = pool.get().await?;
    match client.bounded(ask_on(&client, sql, params.clone())).await {
        Err(Error::Unavailable(_)) if client.was_idle() => {
            drop(client);
            let client = pool.get_new().await?;
            client.bounded(ask_on(&client, sql, params)).await
        }
        answer => answer,
    }
}

async fn ask_on(client: &Loan<'_>, sql: &'static str, params: Vec<Param>) -> Result<Vec<Row>> {
    let prepared = client.find_prepared(sql, &params).await?;
    query_prepared(client, prepared, sql, params).await
}

/// Runs a statement, and stops reading after the row that makes the total exceed a number of bytes, but reads at least
/// two rows (rule 16.4). A connection with unread rows is closed, so that nothing waits for them.
pub(crate) async fn ask_some(
    pool: &Pool,
    sql: &'static str,
    params: Vec<Param>,
    most: usize,
) -> Result<Read> {
    let client = pool.get().await?;
    let was_idle = client.was_idle();
    match query_some(client, sql, params.clone(), most).await {
        Err(Error::Unavailable(_)) if was_idle => {
            query_some(pool.get_new().await?, sql, params, most).await
        }
        answer => answer,
    }
}

async fn query_some(
    client: Loan<'_>,
    sql: &'static str,
    params: Vec<Param>,
    most: usize,
) -> Result<Read> {
    client.begun();
    let lost = |error: tokio_postgres::Error| classify(&error, Fate::Open);
    let rows = async {
        let prepared = client.find_prepared(sql, &params).await?;
        let sent = prepared::send(&client, prepared, sql, params).await;
        let mut found = pin!(sent.map_err(lost)?);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.try_next().await.map_err(lost)? {
            bytes += row.raw_size_bytes();
            rows.push(row);
            if bytes > most && rows.len() > 1 {
                return Ok(Read { rows, cut: true });
            }
        }
        Ok::<Read, Error>(Read { rows, cut: false })
    };
    let deadline = client.deadline();
    let some = match timeout(deadline, rows).await {
        Ok(some) => some?,
        Err(_) => return Err(overdue(deadline)),
    };
    if !some.cut {
        client.ended();
    }
    Ok(some)
}

/// Rows, and whether there are more than were read.
pub(crate) struct Read {
    pub rows: Vec<Row>,
    cut: bool,
}

impl Read {
    /// Makes a page of the rows.
    pub fn page<T: Listed, C>(
        &self,
        read: impl FnOnce(&[Row]) -> Result<Vec<T>>,
        limit: usize,
        most: usize,
        cursor: impl Fn(&T) -> C,
    ) -> Result<Page<T, C>> {
        let mut page = Page::of(read(&self.rows)?, limit, most, &cursor);
        if self.cut && page.next.is_none() {
            page.next = page.items.last().map(cursor);
        }
        Ok(page)
    }
}

/// Reads one instance.
pub(crate) async fn get(pool: &Pool, target: &Target) -> Result<Option<Instance>> {
    let rows = match target {
        Target::Id(id) => ask(pool, BY_ID, vec![Param::one(*id)]).await?,
        Target::Key(key) => ask(pool, BY_KEY, vec![Param::one(key.as_str())]).await?,
    };
    Ok(each(&rows, instances::instance)?.into_iter().next())
}

/// Reads a page of instances.
pub(crate) async fn list(
    pool: &Pool,
    filter: &Filter,
    before: Option<InstanceId>,
    limit: usize,
    most: usize,
) -> Result<Page<Instance>> {
    if filter
        .key_prefix
        .as_ref()
        .is_some_and(|prefix| prefix.contains('\0'))
    {
        // No key has this prefix, and the server does not accept it as text.
        return Ok(Page {
            items: Vec::new(),
            next: None,
        });
    }
    let params = vec![
        Param::one(before.unwrap_or(InstanceId(i64::MAX))),
        Param::one(filter.status.map(Status::code)),
        Param::one(filter.machine.as_ref().map(Name::as_str)),
        Param::one(filter.queue.as_ref().map(Name::as_str)),
        Param::one(filter.key_prefix.as_deref()),
        Param::one(filter.parent),
        Param::one(limit.saturating_add(1)),
        Param::one(filter.chain),
        Param::one(filter.wait_kind.map(WaitKind::name)),
        Param::one(filter.waiting_for.as_ref().map(Name::as_str)),
    ];
    let read = ask_some(pool, LIST, params, reading(most)).await?;
    read.page(
        |rows| each(rows, instances::instance),
        limit,
        most,
        |last| last.id,
    )
}

/// Bytes of rows to read for a page of a given size and one more entry: other columns add to the size.
pub(crate) const fn reading(most: usize) -> usize {
    most.saturating_mul(2)
}

/// Reads a page of records.
pub(crate) async fn commands(
    pool: &Pool,
    filter: &CommandFilter,
    before: Option<CommandId>,
    limit: usize,
    most: usize,
) -> Result<CommandPage> {
    let params = vec![
        Param::one(before.unwrap_or(CommandId(i64::MAX))),
        Param::one(filter.chain),
        Param::one(filter.instance),
        Param::one(filter.key.as_ref().map(Key::as_str)),
        Param::one(filter.kind.map(CommandKind::code)),
        Param::one(filter.name.as_ref().map(Name::as_str)),
        Param::one(filter.status.map(CommandStatus::code)),
        Param::one(limit.saturating_add(1)),
    ];
    let read = ask_some(pool, COMMANDS, params, reading(most)).await?;
    read.page(read_commands, limit, most, |last| last.id)
}

/// Reads the first of the given records, as many as fit on a page.
pub(crate) async fn records(pool: &Pool, ids: &[CommandId], most: usize) -> Result<Records> {
    let params = vec![Param::list(ids.iter().copied())];
    let read = ask_some(pool, RECORDS, params, reading(most)).await?;
    let page = read.page(read_commands, usize::MAX, most, |last| last.id)?;
    let rest = left(ids, page.next);
    let found = page.items;
    Ok(Records { found, rest })
}

/// The ids that a page in order of ids does not cover, because it ends with the given id.
fn left<I: Copy + Ord>(ids: &[I], last: Option<I>) -> Vec<I> {
    let Some(last) = last else {
        return Vec::new();
    };
    ids.iter().copied().filter(|id| *id > last).collect()
}

/// Reads a page of the children of a barrier.
pub(crate) async fn children(
    pool: &Pool,
    parent: InstanceId,
    barrier: BarrierNumber,
    after: Option<InstanceId>,
    most: usize,
) -> Result<Page<Child>> {
    let params = vec![
        Param::one(parent),
        Param::one(barrier),
        Param::one(after.unwrap_or(InstanceId(i64::MIN))),
    ];
    let read = ask_some(pool, CHILDREN_ABOVE, params, reading(most)).await?;
    let children = |rows: &[Row]| {
        let found = read_children(rows)?.into_iter();
        Ok(found.map(|(_, child)| child).collect())
    };
    read.page(children, usize::MAX, most, |last| last.id)
}

/// Reads the pending commands of an inbox, by sequence.
pub(crate) async fn inbox(pool: &Pool, id: InstanceId) -> Result<Vec<Command>> {
    let params = from_kind_params(&[id], CommandKind::Signal);
    in_order(&ask(pool, PENDING_FROM_KIND, params).await?)
}

/// Reads a contract.
pub(crate) async fn contract(pool: &Pool, id: ContractId) -> Result<Option<Json>> {
    let rows = ask(pool, contracts::DEFINITIONS, vec![Param::list([id])]).await?;
    let found = contracts::read_contracts(&rows)?.into_iter().next();
    Ok(found.map(|(_, contract)| contract))
}

/// Reads the first of the given contracts, as many as fit on a page.
pub(crate) async fn contracts(pool: &Pool, ids: &[ContractId], most: usize) -> Result<Contracts> {
    let params = vec![Param::list(ids.iter().copied())];
    let read = ask_some(pool, contracts::DEFINITIONS_IN_ORDER, params, reading(most)).await?;
    let page = read.page(contracts::read_contracts, usize::MAX, most, |last| last.0)?;
    let rest = left(ids, page.next);
    let found = page.items;
    Ok(Contracts { found, rest })
}

/// Reads rows of a history.
pub(crate) async fn history(
    pool: &Pool,
    id: InstanceId,
    after: u32,
    limit: usize,
) -> Result<Vec<HistoryRow>> {
    let params = vec![
        Param::one(id),
        Param::one(i64::from(after)),
        Param::one(limit),
    ];
    let read = ask_some(pool, HISTORY, params, reading(HISTORY_BYTES)).await?;
    each(&read.rows, |cells| {
        let (instance, seq) = (cells.next()?, cells.next()?);
        Ok(HistoryRow {
            instance,
            seq,
            at: cells.next()?,
            events: cells.next()?,
        })
    })
}

/// Reads how the first of the given instances ended, and which do not exist, as many as fit on a page.
pub(crate) async fn endings(pool: &Pool, ids: &[InstanceId], most: usize) -> Result<Endings> {
    let params = vec![Param::list(ids.iter().copied())];
    let read = ask_some(pool, ENDINGS, params, reading(most)).await?;
    let standing = |rows: &[Row]| {
        each(rows, |cells| {
            Ok(Ending {
                id: cells.next()?,
                status: cells.next()?,
                result: cells.next()?,
                last_error: cells.next()?,
            })
        })
    };
    let page = read.page(standing, usize::MAX, most, |last| last.id)?;
    let rest = left(ids, page.next);
    let found: HashSet<InstanceId> = page.items.iter().map(|one| one.id).collect();
    let seen = |id: &&InstanceId| page.next.is_none_or(|last| **id <= last);
    let missing = ids.iter().filter(seen).filter(|id| !found.contains(id));
    let missing = missing.copied().collect();
    let mut ended = page.items;
    ended.retain(|one| one.status.is_terminal());
    Ok(Endings {
        ended,
        missing,
        rest,
    })
}

/// Reads a page of the declarations, by machine and version.
pub(crate) async fn machines(
    pool: &Pool,
    after: Option<&Lane>,
    limit: usize,
    most: usize,
) -> Result<MachinePage> {
    // No name is empty.
    let (machine, version) = after.map_or(("", 0), |lane| (lane.machine.as_str(), lane.version));
    let params = vec![
        Param::one(machine),
        Param::one(version),
        Param::one(limit.saturating_add(1)),
    ];
    let read = ask_some(pool, load::MACHINES, params, reading(most)).await?;
    read.page(load::read_declared, limit, most, |last| Lane {
        machine: last.machine.clone(),
        version: last.version,
    })
}

/// Reads the earliest due time.
pub(crate) async fn next_due(pool: &Pool) -> Result<Option<Timestamp>> {
    let rows = ask(pool, NEXT_DUE, Vec::new()).await?;
    let next: Vec<Option<Timestamp>> = each(&rows, |cells| cells.next())?;
    Ok(next.into_iter().flatten().next())
}

/// Counts the instances by queue and status.
pub(crate) async fn depths(pool: &Pool) -> Result<Vec<QueueDepth>> {
    let rows = ask(pool, DEPTHS, Vec::new()).await?;
    each(&rows, |cells| {
        let (queue, status, wait_kind) = (cells.next()?, cells.next()?, cells.next()?);
        let count = u64::try_from(cells.next::<i64>()?).unwrap_or_default();
        let blocked = u64::try_from(cells.next::<i64>()?).unwrap_or_default();
        Ok(QueueDepth {
            queue,
            status,
            wait_kind,
            count,
            blocked,
            oldest: cells.next()?,
        })
    })
}
