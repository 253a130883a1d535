//! The data types and the rules of abide: plain data in [`model`], pure functions over it in [`rules`].
//! [`mod@sql`] has the names that the stores' statements use for the values of the model.
//!
//! This crate does no I/O, does not wait, and reads neither a clock nor random numbers: everything that varies is an
//! argument. Every other crate of abide depends on it. The engine's semantics are decided only here and in the kernel,
//! which applies the rules.

mod debug;
pub mod model;
pub mod rules;
pub mod sql;
