//! Machines and jobs: what a step may answer, what happens when it fails, and what is remembered of it.

mod attribute;
mod checks;
mod context;
mod deploys;
mod errors;
mod jobs;
mod outcomes;
mod own_policies;
mod retries;
mod storing;
mod time_limits;
