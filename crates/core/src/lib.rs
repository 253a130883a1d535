//! The nouns and the rules of abide: plain data in [`model`], pure functions over it in [`rules`].
//!
//! Nothing here does I/O, waits, reads a clock or rolls dice: what varies is an argument. Every other crate of abide
//! stands on this one, and none of the engine's semantics is decided anywhere else than here and in the kernel that
//! obeys it.

pub mod model;
pub mod rules;
