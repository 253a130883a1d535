//! Starts inside the caller's own transaction.
