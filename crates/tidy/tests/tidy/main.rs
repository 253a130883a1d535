//! Keeps the house in order. What is checked, and where to change what is expected:
//!
//! - `rules`: every rule of `docs/rules.md` has a test that names it;
//! - `walls`: who may depend on whom, between crates and inside them, and that `core` is pure;
//! - `shape`: what every source file looks like;
//! - `supply`: licences and sources of all dependencies;
//! - `docs`: links, the changelog, and what no file of the project may speak of.

mod docs;
mod mutants;
mod rules;
mod shape;
mod supply;
mod walls;
