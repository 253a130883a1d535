-- What an instance was started with of how its steps fail (rule 5.2), as JSON; null when its machine's declaration decides.
alter table abide.instances add column policy text;
