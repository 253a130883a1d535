-- What keeps one fault from reaching others: see docs/reliability.md.

-- Requests that were carried out and what they were answered, so that one that arrives again is answered alike.
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

-- When a contract was noted as used last, so that those that nothing names any more are found (rule 16.2).
alter table abide_definitions add column used_at integer not null default 0;

-- Up to which event each operation of a workflow that waits for events has missed none (rule 14.6), as JSON; null when
-- none does. Of those that wait already: all events that matched have ended them while they stood, so it is the newest;
-- of those that are awake, what was published a minute before they were woken. Operation 0 stands for all of them.
alter table abide_instances add column attended text;

update abide_instances as i set attended = json_array(json_object('operation', 0, 'sequence', coalesce((
    select max(e.sequence) from abide_events as e
    where i.status = 4 or i.aside ->> 'status' = 4 or e.published_at < i.due_at - 60000000), 0)))
where i.kind = 1 and i.status in (2, 3, 4)
    and exists (select 1 from json_each(i.awaits, '$.names') where value like 'event:%');

-- Which paths into the events of which types waits look back on: at most 16 of a type (rule 14.6). One that was not used
-- for long is forgotten, and has another id when it is noted again.
create table abide_event_paths (
    id integer primary key autoincrement,
    used_at integer not null,
    event_type text not null,
    path text not null
) strict;

-- One of a type is noted once.
create unique index abide_event_paths_of_type on abide_event_paths (event_type, path);

-- Those that were not used for long.
create index abide_event_paths_used on abide_event_paths (used_at);

-- What events say at these paths: of each event a row for each of its type at which something stands. The newest that
-- say the same come first (rule 14.6).
create table abide_event_terms (
    path_id integer not null,
    value text not null,                 -- as that of a waiter
    sequence integer not null,
    published_at integer not null,
    primary key (path_id, value, sequence)
) strict, without rowid;

-- Those of an event, which go with it (rule 16.2).
create index abide_event_terms_of_event on abide_event_terms (sequence);

-- Who sent a message, as its sender said; who it was as the server knows stands in `source` (rule 7.3).
alter table abide_signals add column claimed_source text;

-- What it was for is read through those terms.
drop index abide_events_late;
