//! The columns for the indexes, computed from the model of a row.

use abide_core::model::{Name, NewRow, Row, Scope, Scopes, Status, Timestamp};

/// Value of `wake_at` for "never", so that a row without a due time is in the index of parked rows.
pub(crate) const NEVER: i64 = i64::MAX;

/// Value of `wake_at` for a scheduled row without a due time, for the index `abide_blocked`. No real time is as late.
pub(crate) const BLOCKED: i64 = NEVER - 1;

/// A number for the rows that one worker may claim from one queue: a hash (FNV-1a) of the queue, the machine and the
/// version. Rows with the same number are distinguished by these names; the number only keeps the index short.
///
/// It is stored, so it must never change.
pub(crate) fn lane(queue: &Name, machine: &Name, version: u32) -> i64 {
    // No name contains this byte.
    const END: &[u8] = &[0xff];
    let parts = [
        queue.as_str().as_bytes(),
        END,
        machine.as_str().as_bytes(),
        END,
        &version.to_le_bytes(),
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in parts.into_iter().flatten() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash.cast_signed()
}

/// The properties that determine in which indexes a row is.
#[derive(Clone, Copy)]
pub(crate) struct IndexColumns {
    status: Status,
    behind: bool,
    due_at: Option<Timestamp>,
    in_partition: bool,
}

impl From<&Row> for IndexColumns {
    fn from(row: &Row) -> Self {
        Self {
            status: row.status,
            behind: row.behind,
            due_at: row.due_at,
            in_partition: row.partition_key.is_some(),
        }
    }
}

impl From<&NewRow> for IndexColumns {
    fn from(row: &NewRow) -> Self {
        Self {
            status: row.status,
            behind: row.behind,
            due_at: Some(row.due_at),
            in_partition: row.partition_key.is_some(),
        }
    }
}

impl IndexColumns {
    /// The time when it became due, if it can be claimed.
    pub fn ready_at(self) -> Option<i64> {
        let ready = self.status == Status::Runnable && !self.behind;
        ready.then(|| self.due_at.unwrap_or_default().as_micros())
    }

    /// The due time, if it is scheduled or parked; a reserved row is never due, but is counted with them.
    pub fn wake_at(self) -> Option<i64> {
        match self.status {
            Status::Scheduled => Some(self.due_at.map_or(BLOCKED, Timestamp::as_micros)),
            status if status.is_parked() => Some(self.due_at.map_or(NEVER, Timestamp::as_micros)),
            Status::Reserved => Some(NEVER),
            _ => None,
        }
    }

    /// Its position in its partition, as a number.
    pub fn standing(self) -> Option<i64> {
        match self.status {
            _ if !self.in_partition => None,
            Status::Runnable if self.behind => Some(1),
            Status::Runnable => Some(2),
            Status::Executing => Some(3),
            _ => self.behind.then_some(0),
        }
    }
}

/// `true` if a stored position is behind another row.
pub(crate) fn is_behind(standing: Option<i64>) -> bool {
    matches!(standing, Some(0 | 1))
}

/// Two scopes in one number, one bit per status: the key's from bit 0 on, the unique key's from bit 16 on.
pub(crate) fn scopes(key: Scope, unique_key: Scope) -> i64 {
    i64::from(key.bits()) | i64::from(unique_key.bits()) << 16
}

/// The scopes of the keys that a row has, in the form that [`from_scopes`] reads.
pub(crate) const OWN_SCOPES: &str =
    "iif(key is null, 0, scopes & 65535) | iif(unique_key is null, 0, scopes & ~65535)";

/// Reads stored scopes.
pub(crate) fn from_scopes(scopes: i32) -> Scopes {
    Scopes {
        key: Scope::from_bits(scopes),
        unique_key: Scope::from_bits(scopes >> 16),
    }
}

/// The keys that a new row holds: bit 0 for the key, bit 16 for the unique key; `None` if it has none.
pub(crate) fn taken(row: &NewRow) -> Option<i64> {
    let keyed = row.key.is_some() || row.unique_key.is_some();
    keyed.then(|| scopes(row.scope, row.unique_scope) >> row.status.code() & 65537)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_a_number_that_never_changes() {
        let name = |text: &str| Name::stored(text);
        let checkout = lane(&name("default"), &name("checkout"), 1);
        assert_eq!(checkout, -2_303_638_074_516_251_039);
        assert_ne!(
            lane(&name("a"), &name("bc"), 1),
            lane(&name("ab"), &name("c"), 1)
        );
    }

    #[test]
    fn scopes_are_read_back_and_tell_which_keys_are_taken() {
        let (live, never) = (Scope::LIVE.and(Status::Done), Scope::NEVER);
        let both = scopes(live, never);
        let read = from_scopes(i32::try_from(both).unwrap());
        assert_eq!((read.key, read.unique_key), (live, never));
        assert_eq!(both >> Status::Done.code() & 65537, 1);
        assert_eq!(scopes(never, live) >> Status::Done.code() & 65537, 65536);
        assert_eq!(both >> Status::Failed.code() & 65537, 0);
    }

    #[test]
    fn a_row_is_in_the_index_for_what_it_waits_for() {
        let columns = |status, behind, due: Option<i64>, in_partition| IndexColumns {
            status,
            behind,
            due_at: due.map(Timestamp::from_micros),
            in_partition,
        };
        let ready = columns(Status::Runnable, false, Some(5), false);
        assert_eq!(
            (ready.ready_at(), ready.wake_at(), ready.standing()),
            (Some(5), None, None)
        );
        let behind = columns(Status::Runnable, true, Some(5), true);
        assert_eq!(
            (behind.ready_at(), behind.wake_at(), behind.standing()),
            (None, None, Some(1))
        );
        let parked = columns(Status::AwaitingSignal, false, None, true);
        assert_eq!(
            (parked.ready_at(), parked.wake_at(), parked.standing()),
            (None, Some(NEVER), None)
        );
        let blocked = columns(Status::Scheduled, false, None, false);
        assert_eq!(
            (blocked.ready_at(), blocked.wake_at()),
            (None, Some(BLOCKED))
        );
        let reserved = columns(Status::Reserved, false, Some(5), false);
        assert_eq!(
            (reserved.ready_at(), reserved.wake_at()),
            (None, Some(NEVER))
        );
        let done = columns(Status::Done, false, None, true);
        assert_eq!(
            (done.ready_at(), done.wake_at(), done.standing()),
            (None, None, None)
        );
    }
}
