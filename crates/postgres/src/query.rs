//! Answers queries: each is one statement, on a connection of the pool.

use abide_core::model::Timestamp;
use abide_kernel::{Query, QueryResult, Result};

use crate::param::Param;
use crate::pool::Pool;
use crate::{around, census, documents, events, outbox, read, waiters, workers};

/// Runs a query at a time; a page has at most `most` bytes.
pub(crate) async fn find(
    pool: &Pool,
    query: Query,
    now: Timestamp,
    most: usize,
) -> Result<QueryResult> {
    Ok(match query {
        Query::Get(target) => QueryResult::Instance(read::get(pool, &target).await?.map(Box::new)),
        Query::List {
            filter,
            before,
            limit,
        } => QueryResult::Instances(read::list(pool, &filter, before, limit, most).await?),
        Query::Around(ids) => QueryResult::Around(around::of_pool(pool, &ids).await?),
        Query::History { id, after, limit } => {
            QueryResult::History(read::history(pool, id, after, limit).await?)
        }
        Query::Children {
            parent,
            barrier,
            after,
        } => QueryResult::Children(read::children(pool, parent, barrier, after, most).await?),
        Query::Endings(ids) => QueryResult::Endings(read::endings(pool, &ids, most).await?),
        Query::Commands {
            filter,
            before,
            limit,
        } => QueryResult::Commands(read::commands(pool, &filter, before, limit, most).await?),
        Query::Records(ids) => QueryResult::Records(read::records(pool, &ids, most).await?),
        Query::Inbox(id) => QueryResult::Inbox(read::inbox(pool, id).await?),
        Query::Events {
            filter,
            before,
            limit,
        } => QueryResult::Events(events::list(pool, &filter, before, limit, most).await?),
        Query::Waiters {
            filter,
            after,
            limit,
        } => QueryResult::Waiters(waiters::list(pool, &filter, after, limit, most).await?),
        Query::Contract(id) => QueryResult::Contract(read::contract(pool, id).await?),
        Query::Contracts(ids) => QueryResult::Contracts(read::contracts(pool, &ids, most).await?),
        Query::Machines { after, limit } => {
            QueryResult::Machines(read::machines(pool, after.as_ref(), limit, most).await?)
        }
        Query::Documents { kind, after, limit } => {
            QueryResult::Documents(documents::list(pool, kind, after.as_ref(), limit, most).await?)
        }
        Query::Document { kind, name } => {
            QueryResult::Document(documents::document(pool, kind, &name).await?)
        }
        Query::NextDue => QueryResult::Due(read::next_due(pool).await?),
        Query::Workers => {
            let rows = read::ask(pool, workers::LIVING_WORKERS, vec![Param::one(now)]).await?;
            QueryResult::Workers(workers::read_workers(&rows)?)
        }
        Query::Depths => QueryResult::Depths(read::depths(pool).await?),
        Query::Outbox { except, limit } => {
            QueryResult::Outbox(outbox::rows(pool, &except, limit, most).await?)
        }
        Query::Refused { before, limit } => {
            QueryResult::Refused(outbox::refused(pool, before, limit, most).await?)
        }
        Query::OutboxDepth => QueryResult::OutboxDepth(outbox::depth(pool).await?),
        Query::ReadyLanes => QueryResult::ReadyLanes(census::ready_lanes(pool).await?),
        Query::Tally => QueryResult::Tally(census::tally(pool).await?),
    })
}
