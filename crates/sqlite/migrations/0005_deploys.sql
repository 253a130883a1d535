-- What deploys, dying workers and callers' own transactions need (rules 5.7, 12.4 and 17.3).

-- The outbox (rule 17.3): requests that callers insert in transactions of their own, by any driver. Rows are taken in order
-- of id and deleted in the transaction that carries them out. Defaults are evaluated by the SQLite of who inserts, which
-- may be an old one.
create table abide_outbox (
    id integer primary key autoincrement,
    created_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000.0 as integer)),
    request text not null check (length(cast(request as blob)) <= 16777216)
) strict;

-- Requests of the outbox that were refused, for an operator, for a retention.
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
-- The builds that could not run the step of an instance, as a JSON list, the last one at the end; null when there are none.
-- None of them claims it (rule 12.4).
alter table abide_instances add column unfit text;

-- Which build of its code a worker runs, as it says itself; one that does not say is a build of its own.
alter table abide_workers add column build text;

-- How often workers died in the step that an instance is at (rule 5.5), and the last entry of its history that stands for
-- several attempts, as JSON (rule 16.1); null for nearly all.
alter table abide_instances add column deaths integer not null default 0;
alter table abide_instances add column folding text;

-- Which of the 64 epochs before `settled` were committed too, a bit for each, from the one just before it on (rule 1.7).
alter table abide_instances add column settled_before integer not null default 0;
