-- What records say of what they belong to (rules 7.1 and 7.6). In records from before this they are null.

-- Its place among all commands that were recorded for the run, refused ones too.
alter table abide.signals add column command_sequence bigint;

-- The operation of a workflow that took it, and the step of the graph which that belongs to.
alter table abide.signals add column operation int;
alter table abide.signals add column graph_step text;

-- The number of the last command that was recorded for the run; null when there was none.
alter table abide.instances add column command_sequence bigint;

-- The waits of a workflow's operations for signals and events, each with its id, as JSON; null when there are none.
alter table abide.instances add column waits text;

-- What has ended its wait, until that is applied (rule 13.1): a signal (1), an event (2), an update (3), a cancellation
-- (4), its deadline (5) or its children (6); and the command that it was.
alter table abide.instances add column resume_kind smallint;
alter table abide.instances add column resume_command bigint;
