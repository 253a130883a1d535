//! Answers queries: the statements are in the other files, and pages are cut here.

use abide_core::model::{Document, InstanceId, OutboxId, Timestamp, Waiter};
use abide_kernel::{Page, Query, QueryResult};
use rusqlite::{Connection, Result};

use super::{
    around, census, children, commands, contracts, documents, events, inbox, machines, outbox,
    query, waiters, workers,
};

/// Runs a query at a time; a page has at most `most` bytes.
pub(crate) fn find(
    conn: &Connection,
    query: Query,
    now: Timestamp,
    most: usize,
) -> Result<QueryResult> {
    Ok(match query {
        Query::Get(target) => QueryResult::Instance(query::get(conn, &target)?.map(Box::new)),
        Query::List {
            filter,
            before,
            limit,
        } => {
            let found = query::list(conn, &filter, before, one_more(limit), most)?;
            QueryResult::Instances(Page::of(found, limit, most, |one| one.id))
        }
        Query::Around(ids) => QueryResult::Around(around::around(conn, &ids)?),
        Query::History { id, after, limit } => {
            QueryResult::History(query::history(conn, id, after, limit)?)
        }
        Query::Children {
            parent,
            barrier,
            after,
        } => {
            let after = after.unwrap_or(InstanceId(i64::MIN));
            let items = children::above(conn, parent, barrier, after, most)?;
            QueryResult::Children(Page { items, next: None }.within(most, |last| last.id))
        }
        Query::Endings(ids) => QueryResult::Endings(query::endings(conn, &ids, most)?),
        Query::Commands {
            filter,
            before,
            limit,
        } => {
            let found = commands::list(conn, &filter, before, one_more(limit), most)?;
            QueryResult::Commands(Page::of(found, limit, most, |one| one.id))
        }
        Query::Records(ids) => QueryResult::Records(commands::by_ids(conn, &ids, most)?),
        Query::Inbox(id) => QueryResult::Inbox(inbox::whole(conn, id)?),
        Query::Events {
            filter,
            before,
            limit,
        } => {
            let found = events::list(conn, &filter, before, one_more(limit), most)?;
            QueryResult::Events(Page::of(found, limit, most, |one| one.sequence))
        }
        Query::Waiters {
            filter,
            after,
            limit,
        } => {
            let found = waiters::list(conn, &filter, after, one_more(limit), most)?;
            QueryResult::Waiters(Page::of(found, limit, most, |one: &Waiter| {
                (one.instance, one.position)
            }))
        }
        Query::Contract(id) => QueryResult::Contract(contracts::contract(conn, id)?),
        Query::Contracts(ids) => QueryResult::Contracts(contracts::by_ids(conn, &ids, most)?),
        Query::Machines { after, limit } => {
            let found = machines::list(conn, after.as_ref(), one_more(limit), most)?;
            QueryResult::Machines(Page::of(found, limit, most, machines::lane))
        }
        Query::Documents { kind, after, limit } => {
            let found = documents::list(conn, kind, after.as_ref(), one_more(limit), most)?;
            QueryResult::Documents(Page::of(found, limit, most, |one: &Document| {
                one.name.clone()
            }))
        }
        Query::Document { kind, name } => {
            QueryResult::Document(documents::document(conn, kind, &name)?)
        }
        Query::NextDue => QueryResult::Due(query::next_due(conn)?),
        Query::Workers => QueryResult::Workers(workers::living(conn, now)?),
        Query::Depths => QueryResult::Depths(query::depths(conn)?),
        Query::Outbox { except, limit } => {
            QueryResult::Outbox(outbox::rows(conn, &except, limit, most)?)
        }
        Query::Refused { before, limit } => {
            let before = before.unwrap_or(OutboxId(i64::MAX));
            let found = outbox::refused(conn, before, one_more(limit), most)?;
            QueryResult::Refused(Page::of(found, limit, most, |one| one.id))
        }
        Query::OutboxDepth => QueryResult::OutboxDepth(outbox::depth(conn)?),
        Query::ReadyLanes => QueryResult::ReadyLanes(census::ready_lanes(conn)?),
        Query::Tally => QueryResult::Tally(census::tally(conn)?),
    })
}

/// The number of rows to read for a page: one more than it has, to know whether another page follows.
fn one_more(limit: usize) -> usize {
    limit.saturating_add(1)
}
