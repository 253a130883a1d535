//! Starting instances, finding them again, and waiting for what they come to.

mod batches;
mod keys;
mod opening;
mod reading;
mod results;
mod taken_keys;
mod timing;
