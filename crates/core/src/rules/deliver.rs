//! The decision table of rule 7.3: whether a command is accepted.

use super::contract::{self, Steps, Terms, Unfit, ValidationErrors};
use crate::model::{
    CommandKind, Exceeded, Json, Limits, NewCommand, Offer, Rejection, Row, Status,
};

/// The reason why a command is refused, with all problems of its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwanted {
    /// The line of the decision table.
    pub rejection: Rejection,
    /// The problems of the arguments.
    pub errors: Option<ValidationErrors>,
    /// The declared names, if the command's name is not declared.
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

/// Checks a command's arguments against the contract, in at most these steps (rule 8.5). Returns the arguments in
/// stored form, or the reason why they are not accepted. The result depends only on the contract and the command.
pub fn judge(
    delivery: &NewCommand,
    terms: Option<&Terms>,
    steps: &mut Steps,
) -> Result<Json, Unfit> {
    let (name, arguments) = (&delivery.name, &delivery.arguments);
    match (terms, delivery.kind) {
        // Events cannot be sent as signals.
        _ if name.event_type().is_some() => Err(Unfit::Unknown),
        (_, CommandKind::Cancel) | (None, CommandKind::Signal) => Ok(contract::free(arguments)),
        (None, CommandKind::Update) => Err(Unfit::Unknown),
        (Some(terms), CommandKind::Signal) => terms.signal(name, arguments, steps),
        (Some(terms), CommandKind::Update) => terms.update(name, arguments, steps),
    }
}

/// Returns the arguments in stored form, if they match the contract, as [judged](judge) before, and the limit (lines 7,
/// 8 and 9 of rule 7.3).
pub fn fit(
    delivery: &NewCommand,
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

/// Returns the names that could have been sent.
fn offer(kind: CommandKind, terms: Option<&Terms>) -> Offer {
    match (terms, kind) {
        (Some(terms), CommandKind::Signal) => Offer::of(terms.signals()),
        (Some(terms), CommandKind::Update) => Offer::of(terms.updates()),
        (None, _) | (_, CommandKind::Cancel) => Offer::default(),
    }
}

/// Refuses a command to an instance that was not started, or has ended: lines 4 and 6 of rule 7.3.
pub fn is_open(row: &Row) -> Result<(), Rejection> {
    match row.status {
        Status::Reserved => Err(Rejection::NotStarted),
        status if status.is_terminal() => Err(Rejection::NotActive),
        _ => Ok(()),
    }
}

/// Refuses a command of that size if the inbox is full (rule 16.4).
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

/// Refuses a signal of that size if too much is already held for its key (rule 16.4).
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
