//! Events: published once, and delivered to the inbox of every instance that waits for them.

mod coding;
mod first;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod inside;
mod unattended;
mod waiting;
mod waits;
