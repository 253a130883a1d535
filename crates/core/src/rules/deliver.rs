//! The decision table of rule 7.3: whether a command is accepted.

use super::contract::{self, Steps, Terms, Unfit, ValidationErrors, same};
use crate::model::{
    Command, CommandKind, Exceeded, InstanceId, Json, Limits, NewCommand, Offer, Rejection, Row,
    Status, Target,
};

#[cfg(test)]
mod tests;

/// The facts outside of the command that its decision depends on.
pub struct Facts<'a> {
    /// The run that it addresses. `None` if no instance has that id or key.
    pub run: Option<Addressed<'a>>,
    /// The signals that are held for the key that it addresses.
    pub held: Held<'a>,
    /// The limits that apply.
    pub limits: &'a Limits,
}

/// The run that a command addresses.
pub struct Addressed<'a> {
    /// Its row.
    pub row: &'a Row,
    /// The newest run of its chain, if that is known.
    pub newest: Option<InstanceId>,
    /// The command of the same kind that its chain accepted under the same dedup key.
    pub earlier: Option<&'a Command>,
    /// Its contract.
    pub terms: Option<&'a Terms>,
    /// The arguments, as [judged](judge) by the contract.
    pub judged: Result<Json, Unfit>,
}

/// The signals that are held for a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held<'a> {
    /// The one that has the same dedup key.
    pub earlier: Option<&'a Command>,
    /// Their number.
    pub count: usize,
    /// Their total size, in bytes.
    pub bytes: u64,
}

/// The decision about a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// No instance has that id or key. Nothing is recorded.
    NoTarget,
    /// It was sent before: this is its record.
    Duplicate(&'a Command),
    /// It is refused.
    Refused {
        /// The reason.
        unwanted: Unwanted,
        /// `true` if its record belongs to the run that it addresses; `false` if it could not be held.
        of_run: bool,
    },
    /// It is held for the next instance that starts under its key (rule 7.8), with its arguments as they were given.
    Held(Json),
    /// The run that it addresses receives it, with its arguments in stored form.
    Accepted(Json),
}

/// Decides about a command: the first line of rule 7.3 that applies.
pub fn decide<'a>(delivery: &NewCommand, facts: Facts<'a>) -> Decision<'a> {
    let Facts { run, held, limits } = facts;
    let Some(run) = run else {
        // Line 1.
        return match is_to_hold(delivery) {
            true => hold(delivery, held, limits),
            false => Decision::NoTarget,
        };
    };
    let row = run.row;
    let fits = fit(delivery, run.judged, run.terms, limits);
    // Lines 2 and 3.
    if let Some(first) = run.earlier {
        return match is_repeat(delivery, fits.as_ref().ok(), first) {
            true => Decision::Duplicate(first),
            false => refused(Rejection::ConflictingDuplicate.into()),
        };
    }
    // Line 1: the last run under the key has ended.
    if row.status.is_terminal() && is_to_hold(delivery) {
        return hold(delivery, held, limits);
    }
    let is_by_id = matches!(delivery.target, Target::Id(_));
    let newer = run.newest.filter(|newest| *newest != row.id && is_by_id);
    // Lines 4 to 6, then 7 to 9.
    let accepted = is_open(row, newer)
        .and(fits)
        .and_then(|arguments| has_room(row, delivery.kind, &arguments, limits).map(|()| arguments));
    // Line 10.
    accepted.map_or_else(refused, Decision::Accepted)
}

/// `true` if a command is held when no live instance has its key.
fn is_to_hold(delivery: &NewCommand) -> bool {
    delivery.kind == CommandKind::Signal
        && delivery.hold_for.is_some()
        && delivery.start.is_none()
        && matches!(delivery.target, Target::Key(_))
}

/// Decides about a signal that is to be held. Its contract is known only when an instance starts, so its arguments stay
/// as they were given.
fn hold<'a>(delivery: &NewCommand, held: Held<'a>, limits: &Limits) -> Decision<'a> {
    let arguments = Json::of(&delivery.arguments).unwrap_or_default();
    let fits = match (check_size(&arguments, limits), held.earlier) {
        (Err(unwanted), _) => Err(unwanted),
        (Ok(()), None) => may_be_held(held, arguments.size(), limits),
        (Ok(()), Some(first)) if is_repeat(delivery, Some(&arguments), first) => {
            return Decision::Duplicate(first);
        }
        (Ok(()), Some(_)) => Err(Rejection::ConflictingDuplicate.into()),
    };
    match fits {
        Ok(()) => Decision::Held(arguments),
        Err(unwanted) => Decision::Refused {
            unwanted,
            of_run: false,
        },
    }
}

fn refused<'a>(unwanted: Unwanted) -> Decision<'a> {
    Decision::Refused {
        unwanted,
        of_run: true,
    }
}

/// `true` if a command is the same as an earlier one with its dedup key.
fn is_repeat(delivery: &NewCommand, arguments: Option<&Json>, first: &Command) -> bool {
    first.name == delivery.name
        && arguments.is_some_and(|arguments| same(arguments, &first.arguments))
}

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
    /// The newest run of the chain, if another one was addressed.
    pub newest: Option<InstanceId>,
}

impl From<Rejection> for Unwanted {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection,
            errors: None,
            offer: None,
            limit: None,
            newest: None,
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

/// Refuses a command to an instance that was not started, or has ended (lines 4 to 6 of rule 7.3). `newer` is the
/// newest run of its chain, if another one was addressed by its id.
fn is_open(row: &Row, newer: Option<InstanceId>) -> Result<(), Unwanted> {
    match (row.status, newer) {
        (Status::Reserved, _) => Err(Rejection::NotStarted.into()),
        (status, _) if !status.is_terminal() => Ok(()),
        (_, None) => Err(Rejection::NotActive.into()),
        (_, newest) => Err(Unwanted {
            newest,
            ..Rejection::NotCurrent.into()
        }),
    }
}

/// Refuses a command if the inbox is full (line 9 of rule 7.3). A cancellation always has room.
pub fn has_room(
    row: &Row,
    kind: CommandKind,
    arguments: &Json,
    limits: &Limits,
) -> Result<(), Unwanted> {
    if kind == CommandKind::Cancel {
        return Ok(());
    }
    has_room_for(
        row.inbox.signals as usize + row.inbox.updates as usize,
        row.inbox.bytes,
        arguments.size(),
        [
            ("inbox_pending", limits.inbox_pending),
            ("inbox_bytes", limits.inbox_bytes),
        ],
    )
}

/// Refuses arguments that are too large (line 9 of rule 7.3).
fn check_size(arguments: &Json, limits: &Limits) -> Result<(), Unwanted> {
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
fn may_be_held(held: Held<'_>, bytes: usize, limits: &Limits) -> Result<(), Unwanted> {
    has_room_for(
        held.count,
        held.bytes,
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
