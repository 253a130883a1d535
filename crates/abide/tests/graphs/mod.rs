//! Graphs: tasks and waits as data.

mod attempts;
mod building;
mod ends;
mod keeping;
mod old_runs;
mod recorded;
mod running;
mod steps;
