//! Workers over HTTP, against the real binary, over SQLite and over PostgreSQL.

mod claims;
mod clocks;
mod deploys;
mod graphs;
mod idle;
mod kit;
mod large;
mod leases;
mod machines;
mod outcomes;
mod polling;
mod servers;
mod taken_keys;
