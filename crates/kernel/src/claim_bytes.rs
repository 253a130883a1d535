//! The size limit of a claim, in bytes.

use abide_core::model::Claimed;

/// The largest inbox, in bytes of arguments, that a claim over HTTP contains whole. Of a larger inbox, the claim
/// contains only the signals that the step waited for, and the updates (rule 16.4).
pub const INBOX_WHOLE_BYTES: u64 = 256 << 10;

/// Returns the size in bytes of a claimed instance's state and of the commands that may be sent with it (rule 16.4).
/// PostgreSQL computes the same in its statement.
pub fn claimed_bytes(one: &Claimed) -> usize {
    let is_awaited = !one.awaits.is_empty() && one.inbox.signals > 0;
    let is_sent = is_awaited || one.inbox.updates > 0 || one.inbox.bytes <= INBOX_WHOLE_BYTES;
    let messages = match is_sent {
        true => usize::try_from(one.inbox.bytes).unwrap_or(usize::MAX),
        false => 0,
    };
    one.state.size().saturating_add(messages)
}

/// Tracks the remaining size of a claim. The first instance fits whatever its size; the others must fit in the
/// remaining bytes (rule 16.4).
#[derive(Clone, Copy, Debug)]
pub struct ClaimRoom {
    most: usize,
    taken: Option<usize>,
}

impl ClaimRoom {
    /// Creates a room of `most` bytes.
    pub const fn new(most: usize) -> Self {
        Self { most, taken: None }
    }

    /// Takes this many bytes if they fit. After `false`, the caller must take nothing more.
    pub fn take(&mut self, bytes: usize) -> bool {
        let total = self.taken.unwrap_or_default().saturating_add(bytes);
        let fits = self.taken.is_none() || total <= self.most;
        if fits {
            self.taken = Some(total);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fits_however_large_it_is_and_the_others_as_long_as_there_is_room() {
        // rule 16.4
        let mut room = ClaimRoom::new(10);
        assert!(room.take(4) && room.take(6) && room.take(0));
        assert!(!room.take(1));
        let mut room = ClaimRoom::new(10);
        assert!(room.take(11));
        assert!(!room.take(1));
        let mut empty = ClaimRoom::new(0);
        assert!(empty.take(usize::MAX) && !empty.take(usize::MAX));
    }
}
