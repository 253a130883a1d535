-- Instances, their histories, the signals and updates sent to them, events and their waiters, machines, documents,
-- workers, repeated requests, and the outbox.
--
-- Times are microseconds since 1970-01-01T00:00:00Z; statuses, causes and kinds are the codes of the model.

-- One row for each run of an instance. An id is never issued twice, or the claim of a deleted instance could be mistaken
-- for one of a new instance.
--
-- Columns that rules and indexes read come first and large ones last: reading a column costs a walk over those before
-- it. Every claim and every commit reads and rewrites the row, so each column costs about 1 % of a step. Values that
-- most rows do not have therefore share one column.
--
-- An index contains only the rows that it is for, so that neither a backlog nor finished rows make anything slower. A
-- column of its own says which these are, so that a statement that does not concern the index does not touch it: SQLite
-- checks every index whose columns, or whose condition's columns, a statement sets.
create table abide_instances (
    id integer primary key autoincrement,
    status integer not null,
    ready_at integer,                    -- when it became due, while it can be claimed
    wake_at integer,                     -- when it is due, while scheduled, parked or reserved; the end of time for never,
                                         -- and one before it when it is scheduled for never
    lane integer not null,               -- a number made of queue, machine and version
    priority integer not null,
    due_at integer,                      -- has no meaning once it has ended
    worker integer,                      -- while it is executing
    lease_until integer,                 -- when that hold expires, if it has a lease of its own
    limit_until integer,                 -- when its step has then passed its time limit, if it has one
    epoch integer not null,
    settled integer not null,            -- the last epoch under which an outcome was committed
    settled_before integer not null default 0, -- a bit for each of the 64 epochs before that one, from the one just before
                                         -- it on; set if an outcome was committed under it too (rule 1.7)
    step text not null,
    step_seq integer not null,
    attempt integer not null,
    cause integer not null,
    history_seq integer not null,        -- 0 when it keeps no history
    finished_at integer,
    partition_key text,
    standing integer,                    -- 1: behind; 2: at the front; 3: executing; 0: will be behind; null: not in it
    parent_id integer,
    parent_barrier integer not null,
    key text,
    unique_key blob,
    scopes integer not null,             -- a bit for each status: of the key from bit 0 on, of the unique key from 16 on
    taken integer,                       -- scopes >> status & 65537: the keys that it holds; null when it has none
    queue text not null,
    machine text not null,
    version integer not null,
    kind integer not null,
    first_step text not null,
    created_at integer not null,
    updated_at integer not null,
    first_id integer,                    -- its chain's first run, when it is not that itself
    contract integer,                    -- in abide_definitions: the contract of its signals and updates
    policy text,                         -- how its steps fail, as JSON (rule 5.2); null: as its machine declares
    extra text,                          -- what most rows do not have, as JSON: its wait, its inbox, its children and more;
                                         -- null when there is nothing of that
    last_error text,
    result text,
    state text not null
) strict;

-- Each of these ends in the id, as all indexes of SQLite do.

-- Rows that can be claimed, in the order of their claims (rules 6.1, 6.2).
create index abide_claimable on abide_instances (lane, priority, ready_at) where ready_at is not null;

-- Scheduled, parked and reserved rows, by due time.
create index abide_parked on abide_instances (wake_at) where wake_at is not null;

-- Scheduled rows without a due time, by machine and version: workflows whose code did not fit their history (rule 12.4).
create index abide_blocked on abide_instances (machine, version) where wake_at = 9223372036854775806;

-- The rows that each worker holds.
create index abide_held on abide_instances (worker) where worker is not null;

-- Rows that are held under a lease of their own, by its expiry (rules 5.3, 5.4).
create index abide_leased on abide_instances (lease_until) where lease_until is not null;

-- Rows that have ended, by end.
create index abide_finished on abide_instances (finished_at) where finished_at is not null;

-- A key has one holder (rule 2.2).
create unique index abide_key_taken on abide_instances (key) where key is not null and taken & 1 = 1;
create unique index abide_unique_key_taken on abide_instances (unique_key)
    where unique_key is not null and taken & 65536 = 65536;

-- All rows that ever had a key.
create index abide_key on abide_instances (key) where key is not null;

-- A partition has one at its front (rule 6.3).
create unique index abide_partition_front on abide_instances (partition_key) where standing >= 2;

-- The rows of each partition, in the order in which they run.
create index abide_partition_queue on abide_instances (partition_key, priority, due_at)
    where standing = 1 or standing = 2;

-- The children of each barrier.
create index abide_children on abide_instances (parent_id, parent_barrier) where parent_id is not null;

-- The runs of a chain without its first: finds its newest (rule 2.5).
create index abide_chain on abide_instances (first_id) where first_id is not null;

-- History events of each instance: a row for each commit, numbered by its first event.
create table abide_history (
    instance_id integer not null,
    seq integer not null,
    at integer not null,
    events text not null,
    primary key (instance_id, seq)
) strict, without rowid;

-- One row for each signal, update and cancellation that was sent, accepted or not: the inbox and the record in one. As
-- with instances, large columns come last, and an index has a column of its own where a frequent statement would
-- otherwise touch it.
create table abide_signals (
    id integer primary key,              -- taken from abide_numbers
    status integer not null,
    kind integer not null,               -- 0: a signal; 1: an update; 2: a cancellation
    instance_id integer,                 -- the run that has it
    chain_id integer,                    -- the first run of that one's chain
    sequence integer,                    -- its place in the chain; null when it was not accepted
    command_sequence integer,            -- its place among all commands recorded for the run, refused ones too (rule 7.1)
    pending_in integer,                  -- the run in whose inbox it waits, while it does
    held_until integer,                  -- until when it is held, while it is
    name text not null,
    key text,
    dedup_key text,
    wait_id text,
    step_seq integer,                    -- the step that consumed it
    operation integer,                   -- the operation of a workflow that consumed it (rule 7.6)
    graph_step text,                     -- the step of the graph to which that operation belongs
    received_at integer not null,
    hold_until integer,                  -- until when it was to be held
    closed_at integer,
    rejection integer,
    source text,                         -- its sender, as the server authenticated it (rule 7.3)
    claimed_source text,                 -- its sender, as the sender itself says
    error text,
    validation_errors text,
    result text,
    arguments text not null
) strict;

-- Pending commands of each inbox, by name: finding one is not slowed down by those with other names (rule 7.4).
create index abide_signals_pending on abide_signals (pending_in, kind, name, sequence) where pending_in is not null;

-- All commands of each run.
create index abide_signals_of_run on abide_signals (instance_id) where instance_id is not null;

-- A dedup key stands for one accepted message of its chain (rules 7.3 and 9.3).
create unique index abide_signals_deduped on abide_signals (chain_id, kind, dedup_key)
    where dedup_key is not null and sequence is not null;

-- Held signals, by key and by the end of their time (rule 7.8).
create index abide_signals_held on abide_signals (key) where held_until is not null;
create index abide_signals_held_until on abide_signals (held_until) where held_until is not null;

-- Commands that belong to no instance and are not held, by arrival (rule 16.2).
create index abide_signals_adrift on abide_signals (received_at) where instance_id is null and held_until is null;

-- Published events. A sequence is never issued twice.
create table abide_events (
    sequence integer primary key autoincrement,
    published_at integer not null,
    event_type text not null,
    event_id text not null,
    payload text not null
) strict;

-- An event is published once (rule 14.1).
create unique index abide_events_known on abide_events (event_type, event_id);

-- The events of a type, newest first.
create index abide_events_of_type on abide_events (event_type);

-- All events by publication (rule 16.2).
create index abide_events_published on abide_events (published_at);

-- Which paths into the events of which types waits look back on: at most 16 of a type (rule 14.6). A path that was not
-- used for long is deleted, and gets another id when it is recorded again.
create table abide_event_paths (
    id integer primary key autoincrement,
    used_at integer not null,
    event_type text not null,
    path text not null
) strict;

-- A path of a type is recorded once.
create unique index abide_event_paths_of_type on abide_event_paths (event_type, path);

-- Paths by last use.
create index abide_event_paths_used on abide_event_paths (used_at);

-- The values of events at these paths: for each event, a row for each path of its type at which it has a value. Of the
-- events with the same value, the newest comes first (rule 14.6).
create table abide_event_terms (
    path_id integer not null,
    value text not null,                 -- as that of a waiter
    sequence integer not null,
    published_at integer not null,
    primary key (path_id, value, sequence)
) strict, without rowid;

-- The terms of an event, which are deleted with it (rule 16.2).
create index abide_event_terms_of_event on abide_event_terms (sequence);

-- Instances that wait for events: a row for each entry of the index under which a wait is found.
create table abide_waiters (
    instance_id integer not null,
    place integer not null,              -- which of the events that the instance waits for
    value text not null,                 -- the value with which its index condition compares
    path text not null,                  -- the path of that condition; empty when it has none
    event_type text not null,
    since integer not null,
    deadline integer,
    wait_id text not null,
    partition_key text,
    conditions text not null,            -- as JSON
    primary key (instance_id, place, value)
) strict, without rowid;

-- The waiters of an event: those that do not match are never stepped over (rule 14.4).
create index abide_waiters_found on abide_waiters (event_type, path, value);

-- Number of waiters of each type; no row when there are none (rule 14.7).
create table abide_waiter_totals (
    event_type text primary key,
    total integer not null
) strict, without rowid;

-- The last numbers that were issued. They are written in the transaction that uses them, so that none is issued twice,
-- whatever else is written to the file, rolled back or deleted.
create table abide_numbers (
    name text primary key,
    last integer not null
) strict, without rowid;

insert into abide_numbers (name, last) values ('signals', 0);

-- Contracts, by a number derived from their content; none is ever changed.
create table abide_definitions (
    id integer primary key,
    used_at integer not null default 0,  -- when its use was last noted, to find unused ones (rule 16.2)
    contract text not null
) strict;

-- Declarations of machines.
create table abide_machines (
    machine text not null,
    version integer not null,
    kind integer not null,
    first_step text not null,
    queue text not null,
    history integer not null,
    contract integer,
    policy text,                         -- how its steps fail, as JSON; null when nothing is declared about that
    primary key (machine, version)
) strict, without rowid;

-- Small documents that are kept beside the instances: graphs, tokens.
create table abide_documents (
    kind integer not null,
    name text not null,
    updated_at integer not null,
    body text not null,
    primary key (kind, name)
) strict, without rowid;

-- Worker processes, live ones and those that died lately. An id is never issued twice.
create table abide_workers (
    id integer primary key autoincrement,
    name text not null,
    lease_until integer not null,
    started_at integer not null,
    queues text not null,
    lanes text not null,
    build text                           -- which build of its code it runs, as it says itself; null: a build of its own
) strict;

create index abide_workers_by_name on abide_workers (name);
create index abide_workers_by_lease on abide_workers (lease_until);

-- Requests that were carried out, with their answers, so that a repeated request gets the same answer (rule 1.5).
create table abide_requests (
    id integer primary key,
    created_at integer not null,
    caller text not null,
    key text not null,
    part integer not null,
    fingerprint text not null,
    answer text
) strict;

create unique index abide_requests_known on abide_requests (caller, key, part);
create index abide_requests_created on abide_requests (created_at, id);

-- The outbox (rule 17.3): requests that callers insert in transactions of their own, by any driver. Rows are taken in
-- order of id and deleted in the transaction that carries them out. The caller's own SQLite, which may be an old one,
-- evaluates the defaults.
create table abide_outbox (
    id integer primary key autoincrement,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000.0 as integer)),
    request text not null check (length(cast(request as blob)) <= 16777216)
) strict;

-- Requests of the outbox that were refused. They are kept for an operator, for a retention period.
create table abide_outbox_refused (
    id integer primary key autoincrement,
    outbox_id integer not null,
    created_at integer not null,
    refused_at integer not null,
    reason text not null,
    problem text not null,
    request text not null
) strict;

create index abide_outbox_refused_at on abide_outbox_refused (refused_at, id);
