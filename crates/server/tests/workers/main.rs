//! Workers over HTTP, against the real binary, over SQLite and over PostgreSQL.

#[path = "../common/mod.rs"]
mod common;

mod claims;
mod graphs;
mod idle;
mod kit;
mod leases;
mod machines;
mod outcomes;
mod polling;
mod servers;
