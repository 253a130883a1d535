//! Workflows as code.

mod async_updates;
mod blocked;
mod caching;
mod cancelling;
mod children;
mod conditions;
mod continuing;
mod limits;
mod misuse;
mod panics;
mod processes;
mod queries;
mod recorded;
mod replaying;
mod replays_kit;
mod retries;
mod sagas;
mod signals;
mod spot;
mod steps;
mod timers;
mod together;
mod updates;
mod versions;
mod wait_ids;
mod whole;
