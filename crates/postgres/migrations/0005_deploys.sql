-- What deploys, dying workers and callers' own transactions need (rules 5.7, 12.4 and 17.3).

-- The outbox (rule 17.3): requests that callers insert in transactions of their own, by any driver. Rows are taken in order
-- of id and deleted in the transaction that carries them out. A caller needs `insert` on `request` alone.
create table abide.outbox (
    id bigint generated always as identity primary key,
    created_at timestamptz not null default now(),
    role text not null default session_user,
    request text not null,
    constraint outbox_request_size check (octet_length(request) <= 16777216)
);
-- Rows come and go: the space of those that went is used again soon, and the first that are left are found soon.
alter table abide.outbox set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000);

-- Requests of the outbox that were refused, for an operator, for a retention.
create table abide.outbox_refused (
    id bigint generated always as identity primary key,
    outbox_id bigint not null,
    created_at timestamptz not null,
    refused_at timestamptz not null,
    role text not null,
    reason text not null,
    problem text not null,
    request text not null
);
create index outbox_refused_at on abide.outbox_refused (refused_at, id);
-- The builds that could not run the step of an instance, the last one at the end; null when there are none. None of them
-- claims it (rule 12.4).
alter table abide.instances add column unfit text[];

-- Which build of its code a worker runs, as it says itself; one that does not say is a build of its own.
alter table abide.workers add column build text;

-- How often workers died in the step that an instance is at (rule 5.5), and the last entry of its history that stands for
-- several attempts, as JSON (rule 16.1); null for nearly all.
alter table abide.instances
    add column deaths int not null default 0,
    add column folding text;

-- Which of the 64 epochs before `settled` were committed too, a bit for each, from the one just before it on (rule 1.7).
alter table abide.instances add column settled_before bigint not null default 0;
