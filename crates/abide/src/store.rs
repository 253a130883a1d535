//! Stores: the databases that hold instances, the options to open one, and the filters and pages of what is read from
//! it. [`Abide::open`](crate::Abide::open) opens a store by its connection string. [`Store`] is the interface between the
//! engine and a database; it can change in any release.

pub use abide_kernel::{
    Backoff, CommandFilter, CommandPage, EventFilter, EventPage, Filter, Finding, Page, QueueDepth,
    Store, Tally, WaiterFilter, WaiterPage,
};

pub use crate::open::{OpenError, OpenOptions};
