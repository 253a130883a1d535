-- What records say of what they belong to (rules 7.1 and 7.6). In records from before this they are null. What an instance
-- notes of it, the last number and the waits of its operations, is in its columns `inbox` and `awaits`.

-- Its place among all commands that were recorded for the run, refused ones too.
alter table abide_signals add column command_sequence integer;

-- The operation of a workflow that took it, and the step of the graph which that belongs to.
alter table abide_signals add column operation integer;
alter table abide_signals add column graph_step text;
