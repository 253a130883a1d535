//! Keeps the house in order. The checks, and where to change what is expected:
//!
//! - `rules`: every rule of `docs/rules.md` has a test that names it;
//! - `walls`: allowed dependencies, between crates and inside them, and that `core` is pure;
//! - `shape`: what every source file looks like;
//! - `names`: how many names are at the root of the library;
//! - `counts`: how large the project is, and that no statement contains the number of a status;
//! - `errors`: how our errors are printed;
//! - `publishing`: what the registry asks of the crates that are published;
//! - `supply`: licences and sources of all dependencies;
//! - `deploy`: what `deploy/` names (metrics, settings, ports, images, files) is there, and its files can be read;
//! - `docs`: links, the changelog, and what no file of the project may speak of.

mod counts;
mod deploy;
mod docs;
mod errors;
mod mutants;
mod names;
mod publishing;
mod rules;
mod shape;
mod supply;
mod walls;
