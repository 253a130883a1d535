//! The inbox: what a message does when it comes, who is handed it, and who consumes it.

use super::claims::{come_back, queue_up};
use super::contract::{self, Steps, Terms, Unfit, ValidationErrors};
use crate::model::{
    Aside, Awaits, Cause, Closing, CommandId, CommandKind, CommandStatus, Delivery, Exceeded,
    Happening, Json, Limits, Name, Offer, Pending, Rejection, Row, Sequence, Status, Taken,
    Timestamp, WaitId, WaitKind,
};

/// The one stream of messages that an instance has.
const STREAM: &str = "inbox";

/// Why a message is refused, with all that is wrong with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwanted {
    /// The line of the decision table.
    pub rejection: Rejection,
    /// What is wrong with the arguments.
    pub errors: Option<ValidationErrors>,
    /// The names that are declared, when the message's is none of them.
    pub offer: Option<Offer>,
    /// The limit that it would exceed.
    pub limit: Option<Exceeded>,
}

impl From<Rejection> for Unwanted {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            errors: None,
            offer: None,
            limit: None,
        }
    }
}

/// What the contract says of a message's arguments, in no more than these steps (rule 8.5): the arguments as they are
/// stored, or why they are not taken. It follows from the contract and the message alone.
pub fn judge(delivery: &Delivery, terms: Option<&Terms>, steps: &mut Steps) -> Result<Json, Unfit> {
    let (name, arguments) = (&delivery.name, &delivery.arguments);
    match (terms, delivery.kind) {
        // Events come by themselves.
        _ if name.event_type().is_some() => Err(Unfit::Unknown),
        (_, CommandKind::Cancel) | (None, CommandKind::Signal) => Ok(contract::free(arguments)),
        (None, CommandKind::Update) => Err(Unfit::Unknown),
        (Some(terms), CommandKind::Signal) => terms.signal(name, arguments, steps),
        (Some(terms), CommandKind::Update) => terms.update(name, arguments, steps),
    }
}

/// The arguments as they are stored, when they keep the contract, as it was [judged](judge), and the limit (lines 7, 8
/// and 9 of rule 7.3).
pub fn fit(
    delivery: &Delivery,
    judged: Result<Json, Unfit>,
    terms: Option<&Terms>,
    limits: &Limits,
) -> Result<Json, Unwanted> {
    let (unknown, invalid) = match delivery.kind {
        CommandKind::Signal | CommandKind::Cancel => {
            (Rejection::UnknownSignal, Rejection::InvalidSignal)
        }
        CommandKind::Update => (Rejection::UnknownUpdate, Rejection::InvalidUpdate),
    };
    let errors = match judged {
        Ok(arguments) if delivery.kind == CommandKind::Cancel => return Ok(arguments),
        Ok(arguments) => return check_size(&arguments, limits).map(|()| arguments),
        Err(Unfit::Unknown) if delivery.name.event_type().is_some() => {
            return Err(Rejection::UnknownSignal.into());
        }
        Err(Unfit::Unknown) => {
            return Err(Unwanted {
                offer: Some(offer(delivery.kind, terms)),
                ..unknown.into()
            });
        }
        Err(Unfit::Invalid(errors)) => errors,
        Err(Unfit::TooLong { most }) => {
            Unfit::too_long(most, contract::free(&delivery.arguments).size())
        }
    };
    Err(Unwanted {
        errors: Some(errors),
        ..invalid.into()
    })
}

/// What could have been sent.
fn offer(kind: CommandKind, terms: Option<&Terms>) -> Offer {
    match (terms, kind) {
        (Some(terms), CommandKind::Signal) => Offer::of(terms.signals()),
        (Some(terms), CommandKind::Update) => Offer::of(terms.updates()),
        (None, _) | (_, CommandKind::Cancel) => Offer::default(),
    }
}

/// Whether a message may come in at all: lines 4, 6 and the first half of 9 of rule 7.3.
pub fn is_open(row: &Row) -> Result<(), Rejection> {
    match row.status {
        Status::Reserved => Err(Rejection::NotStarted),
        status if status.is_terminal() => Err(Rejection::NotActive),
        _ => Ok(()),
    }
}

/// Refuses a message of that size that finds the inbox full (rule 16.4).
pub fn has_room(row: &Row, bytes: usize, limits: &Limits) -> Result<(), Unwanted> {
    let pending = row.inbox.signals as usize + row.inbox.updates as usize;
    has_room_for(
        pending,
        row.inbox.bytes,
        bytes,
        [
            ("inbox_pending", limits.inbox_pending),
            ("inbox_bytes", limits.inbox_bytes),
        ],
    )
}

/// Refuses arguments that are too large (line 9 of rule 7.3).
pub fn check_size(arguments: &Json, limits: &Limits) -> Result<(), Unwanted> {
    let (most, met) = (limits.payload_bytes, arguments.size());
    if met <= most {
        return Ok(());
    }
    Err(Unwanted {
        limit: Some(Exceeded::new("payload_bytes", most, met)),
        ..Rejection::PayloadTooLarge.into()
    })
}

/// Refuses a signal of that size that finds too much held for its key already (rule 16.4).
pub fn may_be_held(count: usize, held: u64, bytes: usize, limits: &Limits) -> Result<(), Unwanted> {
    has_room_for(
        count,
        held,
        bytes,
        [
            ("held_per_key", limits.held_per_key),
            ("held_bytes", limits.held_bytes),
        ],
    )
}

fn has_room_for(
    count: usize,
    there: u64,
    bytes: usize,
    [(count_limit, count_max), (bytes_limit, bytes_max)]: [(&'static str, usize); 2],
) -> Result<(), Unwanted> {
    let met = usize::try_from(there)
        .unwrap_or(usize::MAX)
        .saturating_add(bytes);
    let exceeded = if count >= count_max {
        Exceeded::new(count_limit, count_max, count.saturating_add(1))
    } else if met > bytes_max {
        Exceeded::new(bytes_limit, bytes_max, met)
    } else {
        return Ok(());
    };
    Err(Unwanted {
        limit: Some(exceeded),
        ..Rejection::InboxFull.into()
    })
}

/// A message that has come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its place in the chain.
    pub sequence: Sequence,
    /// Where its record stands.
    pub status: CommandStatus,
    /// The wait that takes it; a buffered one has its own id.
    pub wait_id: Option<WaitId>,
    /// What to write into the history.
    pub told: Happening,
}

/// The sender of a message (rule 7.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sender<'a> {
    /// Who it is, as the program or the server that opened the store knows.
    pub source: Option<&'a str>,
    /// Who it says that it is.
    pub claimed_source: Option<&'a str>,
}

/// Takes a message into the inbox and wakes whoever waits for it (rules 7.1 and 7.2).
pub fn receive(
    row: &mut Row,
    id: CommandId,
    kind: CommandKind,
    name: &Name,
    arguments: &Json,
    sender: Sender<'_>,
    now: Timestamp,
) -> Received {
    row.inbox.sequence = Sequence(row.inbox.sequence.0 + 1);
    row.inbox.bytes = row.inbox.bytes.saturating_add(arguments.size() as u64);
    let sequence = row.inbox.sequence;
    let source = sender.source.map(str::to_owned);
    let claimed_source = sender.claimed_source.map(str::to_owned);
    match kind {
        CommandKind::Signal => {
            row.inbox.signals += 1;
            let wait_id = match_wait(row, name, now).unwrap_or_else(|| own_wait(id));
            let told = match name.event_type() {
                Some(event_type) => Happening::EventMatched {
                    command_id: id,
                    event_type: Name::stored(event_type),
                    event_id: Name::stored(source.unwrap_or_default()),
                    message_sequence: sequence,
                    wait_id: wait_id.clone(),
                },
                None => Happening::SignalReceived {
                    command_id: id,
                    name: name.clone(),
                    message_sequence: sequence,
                    wait_id: wait_id.clone(),
                    source,
                    claimed_source,
                },
            };
            Received {
                sequence,
                status: CommandStatus::Received,
                wait_id: Some(wait_id),
                told,
            }
        }
        CommandKind::Update | CommandKind::Cancel => {
            row.inbox.updates += 1;
            step_aside(row, now);
            let told = match kind {
                CommandKind::Cancel => Happening::CancelRequested {
                    command_id: id,
                    message_sequence: sequence,
                    reason: reason_of(arguments),
                    source,
                    claimed_source,
                },
                _ => Happening::UpdateAccepted {
                    update_id: id,
                    name: name.clone(),
                    message_sequence: sequence,
                    source,
                    claimed_source,
                },
            };
            Received {
                sequence,
                status: CommandStatus::Accepted,
                wait_id: None,
                told,
            }
        }
    }
}

/// Why a cancellation was asked for.
pub fn reason_of(arguments: &Json) -> String {
    contract::yields(arguments).to().unwrap_or_default()
}

/// The id of the wait that takes a signal of that name, woken by it or about to run.
fn match_wait(row: &mut Row, name: &Name, now: Timestamp) -> Option<WaitId> {
    let awaits = row.awaits.as_ref().filter(|awaits| awaits.takes(name))?;
    let wait_id = awaits.id.clone();
    match row.stands() {
        Status::AwaitingSignal if name.event_type().is_some() => {
            come_back(row, now, Cause::Event);
        }
        Status::AwaitingSignal => come_back(row, now, Cause::Signal),
        // Woken and not begun: it is handed this one too. What has timed out is not (rule 7.5).
        Status::Runnable if !row.timed_out => {}
        _ => return None,
    }
    row.inbox.handed = row.inbox.sequence;
    wait_id
}

/// Takes an instance that waits aside, so that its updates are handled now.
pub(super) fn step_aside(row: &mut Row, now: Timestamp) {
    let waits = matches!(
        row.status,
        Status::Scheduled | Status::AwaitingSignal | Status::AwaitingChildren
    );
    // One whose code does not fit its history could not handle them.
    if waits && !row.is_blocked() {
        row.aside = Some(Aside {
            status: row.status,
            due_at: row.due_at,
            cause: row.cause,
        });
        queue_up(row, now, Cause::Update);
    }
}

/// Puts an instance back to where it stood before its updates.
pub(super) fn step_back(row: &mut Row, aside: Aside) {
    row.aside = None;
    row.status = aside.status;
    row.due_at = aside.due_at;
    row.cause = aside.cause;
    row.behind = false;
}

/// The id of a wait that is opened at this step.
pub(super) fn wait_of(row: &Row, names: &[Name], buffered: Option<&Pending>) -> WaitId {
    match buffered {
        // rule 7.6: a wait for one name adopts the id of the signal that was there before it.
        Some(first) if names.len() == 1 => own_wait(first.id),
        _ => WaitId::stored(format!("wait:{}:{}", row.id, row.step_seq)),
    }
}

/// The id of the wait that a buffered signal carries.
pub(super) fn own_wait(id: CommandId) -> WaitId {
    WaitId::stored(format!("signal:{id}"))
}

impl Awaits {
    /// Whether a signal of that name is waited for.
    pub fn takes(&self, name: &Name) -> bool {
        matches!(self.kind, WaitKind::Signal | WaitKind::Event) && self.names.contains(name)
    }
}

/// Whether the step that runs, or ran, was handed that message (rule 7.4).
pub fn was_handed(row: &Row, pending: &Pending) -> bool {
    pending.kind == CommandKind::Signal
        && pending.sequence <= row.inbox.handed
        && row
            .awaits
            .as_ref()
            .is_some_and(|awaits| awaits.takes(&pending.name))
}

/// What the end of a step does to messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// What to write to their records.
    pub closings: Vec<Closing>,
    /// What to write into the history.
    pub told: Vec<Happening>,
}

/// Consumes exactly what the step was handed (rule 4.1), and moves the cursor (rule 7.7).
pub fn consume(row: &mut Row, pending: &[Pending]) -> Closed {
    let handed: Vec<&Pending> = pending.iter().filter(|one| was_handed(row, one)).collect();
    apply(row, &handed)
}

/// Consumes exactly the signals that a workflow took (rule 12.2), and moves the cursor.
pub fn take(row: &mut Row, taken: &[Taken], pending: &[Pending]) -> Closed {
    let find = |taken: &Taken| {
        let is_it = |one: &&Pending| one.kind == CommandKind::Signal && one.id == taken.id;
        pending.iter().find(is_it)
    };
    let mut found: Vec<&Pending> = Vec::with_capacity(taken.len());
    for one in taken.iter().filter_map(find) {
        // What is named twice is taken once.
        if found.iter().all(|other| other.id != one.id) {
            found.push(one);
        }
    }
    apply(row, &found)
}

fn apply(row: &mut Row, signals: &[&Pending]) -> Closed {
    let mut closed = Closed::default();
    let mut highest = row.inbox.cursor;
    for one in signals.iter().copied() {
        let wait_id = row
            .awaits
            .as_ref()
            .filter(|_| was_handed(row, one))
            .and_then(|awaits| awaits.id.clone())
            .unwrap_or_else(|| own_wait(one.id));
        closed.told.push(Happening::SignalApplied {
            command_id: one.id,
            name: one.name.clone(),
            message_sequence: one.sequence,
            wait_id: wait_id.clone(),
            step: row.step.clone(),
            step_sequence: row.step_seq,
        });
        closed.closings.push(Closing {
            id: one.id,
            status: CommandStatus::Applied,
            wait_id: Some(wait_id),
            step_sequence: Some(row.step_seq),
            result: None,
            error: None,
        });
        highest = highest.max(one.sequence);
    }
    let count = u32::try_from(closed.closings.len()).unwrap_or(u32::MAX);
    row.inbox.signals = row.inbox.signals.saturating_sub(count);
    row.inbox.settle_bytes();
    closed.told.extend(advance(row, highest));
    closed
}

/// Moves the cursor forward, and tells of it when it moved (rule 7.7).
pub(super) fn advance(row: &mut Row, to: Sequence) -> Option<Happening> {
    let from = row.inbox.cursor;
    (to > from).then(|| {
        row.inbox.cursor = to;
        Happening::MessageCursorAdvanced {
            stream: STREAM.to_owned(),
            from,
            to,
        }
    })
}

/// Closes the whole inbox of an instance that ends: nobody will take what is left (rules 4.1 and 9.2).
pub fn discard(row: &mut Row, left: &[Pending], ended_as: Status) -> Closed {
    let mut closed = Closed::default();
    for one in left {
        let (id, name, message_sequence) = (one.id, one.name.clone(), one.sequence);
        let unhandled = || format!("the instance ended as {ended_as} before it was handled");
        let (status, error, told) = match one.kind {
            CommandKind::Signal => (
                CommandStatus::Discarded,
                None,
                Some(Happening::SignalDiscarded {
                    command_id: id,
                    name,
                    message_sequence,
                }),
            ),
            CommandKind::Update => (
                CommandStatus::Failed,
                Some(unhandled()),
                Some(Happening::UpdateFailed {
                    update_id: id,
                    name,
                    message_sequence,
                    error: unhandled(),
                }),
            ),
            CommandKind::Cancel => (CommandStatus::Failed, Some(unhandled()), None),
        };
        closed.told.extend(told);
        closed.closings.push(Closing {
            id,
            status,
            wait_id: None,
            step_sequence: None,
            result: None,
            error,
        });
    }
    (row.inbox.signals, row.inbox.updates) = (0, 0);
    row.inbox.settle_bytes();
    closed
}

/// Which updates go before the step: those that came before the signal that woke it (rule 9.4). All of them when it was
/// not a signal.
pub fn go_first(woken_by: Option<Sequence>, update: Sequence) -> bool {
    woken_by.is_none_or(|signal| update < signal)
}
