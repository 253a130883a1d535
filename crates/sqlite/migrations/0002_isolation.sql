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
