//! Workflows as code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
#[path = "../workflows/told.rs"]
mod told;
#[path = "../workflows/steps.rs"]
mod steps;
#[path = "../workflows/retries.rs"]
mod retries;
#[path = "../workflows/together.rs"]
mod together;
#[path = "../workflows/spot.rs"]
mod spot;
#[path = "../workflows/versions.rs"]
mod versions;
#[path = "../workflows/replaying.rs"]
mod replaying;
#[path = "../workflows/blocked.rs"]
mod blocked;
#[path = "../workflows/misuse.rs"]
mod misuse;
#[path = "../workflows/caching.rs"]
mod caching;
#[path = "../workflows/replays_kit.rs"]
mod replays_kit;
#[path = "../workflows/queries.rs"]
mod queries;
