//! Waits that end: each for a condition, with a deadline that only a broken engine meets.

use std::time::{Duration, Instant};

/// The maximum time that anything may take, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The interval between two checks.
pub const INTERVAL: Duration = Duration::from_millis(2);

/// Returns the time at which waiting ends.
pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// Waits until something holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = deadline();
    while !holds().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for something that must come.
pub async fn soon<T>(what: &str, comes: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, comes).await {
        Ok(value) => value,
        Err(_) => panic!("waited in vain for {what}"),
    }
}
