-- Instances, their histories, the signals and updates sent to them, events and who waits for them, what is declared of
-- machines, documents, and workers.
--
-- Times are microseconds since 1970-01-01T00:00:00Z; statuses, causes and kinds are the codes of the model.

-- One row for each run of an instance. What rules and indexes read comes first and what is large comes last: reading a
-- column costs a walk over those before it. An id is never given twice, or the claim of a deleted instance could be
-- taken for one of a new instance.
--
-- An index carries only the rows it is for, so that neither a backlog nor what has finished makes anything slower, and
-- it has a column of its own to tell which these are, so that a statement which does not concern it does not touch it:
-- SQLite looks at every index whose columns, or whose condition's columns, a statement sets.
create table abide_instances (
    id integer primary key autoincrement,
    status integer not null,
    ready_at integer,                    -- when it became due, while it can be claimed
    wake_at integer,                     -- when it is due, while scheduled, parked or reserved; the end of time for never,
                                         -- and one before it when it is scheduled for never
    lane integer not null,               -- a number made of queue, machine and version
    priority integer not null,
    due_at integer,                      -- of what has ended it means nothing
    worker integer,                      -- while it is executing
    lease_until integer,                 -- when that hold runs out, if it has a lease of its own
    limit_until integer,                 -- when its step has then passed its time limit, if it has one
    epoch integer not null,
    settled integer not null,
    step text not null,
    step_seq integer not null,
    attempt integer not null,
    cause integer not null,
    timed_out integer not null,
    awaits text,                         -- what it waits for, as JSON
    family text,                         -- how its children stand, as JSON; null when it never had any
    history_seq integer not null,        -- 0 when it keeps no history
    finished_at integer,
    partition_key text,
    standing integer,                    -- 1: behind; 2: at the front; 3: executing; 0: will stand behind; null: not in it
    parent_id integer,
    parent_barrier integer not null,
    key text,
    unique_key blob,
    scopes integer not null,             -- a bit for each status: of the key from bit 0 on, of the unique key from 16 on
    taken integer,                       -- scopes >> status & 65537: which keys it holds; null when it has none
    queue text not null,
    machine text not null,
    version integer not null,
    kind integer not null,
    first_step text not null,
    created_at integer not null,
    updated_at integer not null,
    run_number integer not null default 1,
    first_id integer,                    -- its chain's first run, when it is not that itself
    contract integer,                    -- in abide_definitions: what its signals and updates must look like
    inbox text,                          -- its messages, counted, as JSON; null when it never had any
    aside text,                          -- where it goes back to when it runs for updates alone, as JSON
    last_error text,
    result text,
    state text not null
) strict;

-- Each of these ends in the id, as all indexes of SQLite do.

-- Who is claimed next (rules 6.1, 6.2).
create index abide_claimable on abide_instances (lane, priority, ready_at) where ready_at is not null;

-- What is scheduled, parked or reserved, by when it is due.
create index abide_parked on abide_instances (wake_at) where wake_at is not null;

-- What is scheduled and due at no time, by what it runs: workflows whose code did not fit their history (rule 12.4).
create index abide_blocked on abide_instances (machine, version) where wake_at = 9223372036854775806;

-- What each worker holds.
create index abide_held on abide_instances (worker) where worker is not null;

-- What is held under a lease of its own, by when that runs out (rules 5.3, 5.4).
create index abide_leased on abide_instances (lease_until) where lease_until is not null;

-- What has ended, by when it did.
create index abide_finished on abide_instances (finished_at) where finished_at is not null;

-- A key has one holder (rule 2.2).
create unique index abide_key_taken on abide_instances (key) where key is not null and taken & 1 = 1;
create unique index abide_unique_key_taken on abide_instances (unique_key)
    where unique_key is not null and taken & 65536 = 65536;

-- All who ever had a key.
create index abide_key on abide_instances (key) where key is not null;

-- A partition has one at its front (rule 6.3).
create unique index abide_partition_front on abide_instances (partition_key) where standing >= 2;

-- Who is next in a partition.
create index abide_partition_queue on abide_instances (partition_key, priority, due_at)
    where standing = 1 or standing = 2;

-- The children of each barrier.
create index abide_children on abide_instances (parent_id, parent_barrier) where parent_id is not null;

-- The runs of a chain but its first, by which its newest is found (rule 2.5).
create index abide_chain on abide_instances (first_id) where first_id is not null;

-- What happened to each instance: a row for each commit, numbered by its first event.
create table abide_history (
    instance_id integer not null,
    seq integer not null,
    at integer not null,
    events text not null,
    primary key (instance_id, seq)
) strict, without rowid;

-- One row for each signal, update and cancellation that was sent, accepted or not: inbox, record and life in one. As
-- with instances, what is large comes last, and an index has a column of its own where a statement that is run often
-- would else touch it.
create table abide_signals (
    id integer primary key,              -- taken from abide_numbers
    status integer not null,
    kind integer not null,               -- 0: a signal; 1: an update; 2: a cancellation
    instance_id integer,                 -- the run that has it
    chain_id integer,                    -- the first run of that one's chain
    sequence integer,                    -- its place in the chain; null when it was not accepted
    pending_in integer,                  -- the run in whose inbox it waits, while it does
    held_until integer,                  -- how long it is held, while it is
    name text not null,
    key text,
    dedup_key text,
    wait_id text,
    step_seq integer,                    -- the step that consumed it
    received_at integer not null,
    hold_until integer,                  -- how long it was to be held
    closed_at integer,
    rejection integer,
    source text,
    error text,
    validation_errors text,
    result text,
    arguments text not null
) strict;

-- What waits in each inbox, by name: what has other names costs a look for one nothing (rule 7.4).
create index abide_signals_pending on abide_signals (pending_in, kind, name, sequence) where pending_in is not null;

-- All that each run has.
create index abide_signals_of_run on abide_signals (instance_id) where instance_id is not null;

-- A dedup key stands for one accepted message of its chain (rules 7.3 and 9.3).
create unique index abide_signals_deduped on abide_signals (chain_id, kind, dedup_key)
    where dedup_key is not null and sequence is not null;

-- What is held for each key, and by when it is over (rule 7.8).
create index abide_signals_held on abide_signals (key) where held_until is not null;
create index abide_signals_held_until on abide_signals (held_until) where held_until is not null;

-- What nobody has, by when it came (rule 16.2).
create index abide_signals_adrift on abide_signals (received_at) where instance_id is null and held_until is null;

-- What was published. A sequence is never given twice.
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

-- Those of late: what a wait looks back at reads nothing that is older (rule 14.6).
create index abide_events_late on abide_events (event_type, published_at);

-- All events by when they were published (rule 16.2).
create index abide_events_published on abide_events (published_at);

-- Who waits for events: a row for each place of the index at which a wait stands.
create table abide_waiters (
    instance_id integer not null,
    place integer not null,              -- which of the events that the instance waits for
    value text not null,                 -- what its index condition compares with
    path text not null,                  -- where that looks; empty when it has none
    event_type text not null,
    since integer not null,
    deadline integer,
    wait_id text not null,
    partition_key text,
    conditions text not null,            -- as JSON
    primary key (instance_id, place, value)
) strict, without rowid;

-- Whom an event is for: what does not match is never stepped over (rule 14.4).
create index abide_waiters_found on abide_waiters (event_type, path, value);

-- How many rows of each type there are in it; none when there are none (rule 14.7).
create table abide_waiter_totals (
    event_type text primary key,
    total integer not null
) strict, without rowid;

-- The last numbers given out. They are written in the transaction that uses them, so that none is given twice, whoever
-- else writes to the file, whatever is rolled back and whatever is deleted.
create table abide_numbers (
    name text primary key,
    last integer not null
) strict, without rowid;

insert into abide_numbers (name, last) values ('signals', 0);

-- Contracts, by a number made of what they say; none is ever changed.
create table abide_definitions (
    id integer primary key,
    contract text not null
) strict;

-- What is declared of machines.
create table abide_machines (
    machine text not null,
    version integer not null,
    kind integer not null,
    first_step text not null,
    queue text not null,
    history integer not null,
    contract integer,
    policy text,                         -- how its steps fail, as JSON; null when nothing is declared of that
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

-- Worker processes, the living and the lately dead. An id is never given twice.
create table abide_workers (
    id integer primary key autoincrement,
    name text not null,
    lease_until integer not null,
    started_at integer not null,
    queues text not null,
    lanes text not null
) strict;

create index abide_workers_by_name on abide_workers (name);
create index abide_workers_by_lease on abide_workers (lease_until);
