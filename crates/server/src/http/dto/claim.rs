//! A claim as a worker is given it.

use std::time::Duration;

use abide::InstanceId;
use abide::model::{CommandId, Json, Key, Name, Sequence};
use abide::time::Timestamp;
use abide_kernel::model::{Cause, Child, Claimed, Command};
use serde::Serialize;
use utoipa::ToSchema;

use crate::workers::{ClaimToken, ClaimedStep, Sealer};

/// An instance that a worker has claimed, with the input of its step.
#[derive(Serialize, ToSchema)]
#[schema(as = Claim)]
pub struct ClaimView {
    /// The claim token: send it back unchanged with the outcome and with heartbeats.
    claim: String,
    /// The instance.
    #[schema(value_type = i64)]
    instance_id: InstanceId,
    /// Its key.
    key: Option<Key>,
    /// The machine.
    machine: Name,
    /// Its version.
    version: u32,
    /// The step to run.
    step: Name,
    /// The state to run it with.
    state: Json,
    /// The number of earlier attempts at this step.
    attempt: u32,
    /// The number of those attempts in which the worker died.
    deaths: u32,
    /// The pending signals and events that it waited for, in order.
    awaited: Vec<InboxEntry>,
    /// All that are pending, in order; of an inbox of more than 256 KiB only those that it waited for.
    inbox: Vec<InboxEntry>,
    /// How many more are pending than `inbox` has: `GET /v1/instances/{id}/signals` lists them.
    inbox_omitted: u32,
    /// The children of the barrier that it joins.
    children: Vec<Child>,
    /// `true` if the deadline of its wait has passed.
    timed_out: bool,
    /// The updates to answer: when there are any, the outcome is an `answer`, and the step runs later.
    updates: Vec<UpdateToAnswer>,
    /// The cause of its wake-up.
    cause: Cause,
    /// The number of this step in the run, the same when it is run again: with the instance's id it is a token for side
    /// effects that must not be done twice.
    step_sequence: u32,
}

/// A signal or an event in an inbox.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub struct InboxEntry {
    /// Its record.
    #[schema(value_type = i64)]
    id: CommandId,
    /// `signal` or `event`.
    kind: &'static str,
    /// Its name; of an event its type.
    name: Name,
    /// Its value: `true` without arguments, the value of a single argument, or the list of several.
    payload: Json,
    /// Its arguments: an object by parameter under a contract, else a list.
    arguments: Json,
    /// Its message sequence in the chain.
    #[schema(value_type = Option<i64>)]
    message_sequence: Option<Sequence>,
    /// Its command sequence in the run.
    #[schema(value_type = Option<i64>)]
    command_sequence: Option<Sequence>,
    /// The time when it arrived.
    received_at: Timestamp,
}

/// An update to answer.
#[derive(Serialize, ToSchema)]
pub struct UpdateToAnswer {
    /// Its record.
    #[schema(value_type = i64)]
    update_id: CommandId,
    /// Its name.
    name: Name,
    /// Its arguments: an object by parameter.
    arguments: Json,
}

impl ClaimView {
    /// Makes the response for a claimed instance.
    pub fn new(
        claimed: Claimed,
        inbox: Vec<Command>,
        worker: &Name,
        lease: Duration,
        since: Timestamp,
        sealer: &Sealer,
    ) -> Self {
        let step = ClaimedStep::of(&claimed);
        let token = ClaimToken {
            claim: claimed.claim,
            worker: worker.clone(),
            lease,
            since,
            step,
        };
        Self {
            claim: token.encode(sealer),
            instance_id: token.claim.id(),
            key: claimed.key,
            machine: claimed.machine,
            version: claimed.version,
            step: claimed.step,
            state: claimed.state,
            attempt: claimed.attempt,
            deaths: claimed.deaths,
            awaited: claimed.awaited.into_iter().map(InboxEntry::from).collect(),
            inbox_omitted: claimed
                .inbox
                .signals
                .saturating_sub(u32::try_from(inbox.len()).unwrap_or(u32::MAX)),
            inbox: inbox.into_iter().map(InboxEntry::from).collect(),
            children: claimed.children,
            timed_out: claimed.timed_out,
            updates: claimed
                .updates
                .into_iter()
                .map(UpdateToAnswer::from)
                .collect(),
            cause: claimed.cause,
            step_sequence: claimed.step_seq,
        }
    }
}

impl From<Command> for InboxEntry {
    fn from(message: Command) -> Self {
        let (kind, name) = message.kind_and_name();
        Self {
            id: message.id,
            kind,
            name,
            payload: message.payload(),
            arguments: message.arguments,
            message_sequence: message.sequence,
            command_sequence: message.command_sequence,
            received_at: message.received_at,
        }
    }
}

impl From<Command> for UpdateToAnswer {
    fn from(update: Command) -> Self {
        Self {
            update_id: update.id,
            name: update.name,
            arguments: update.arguments,
        }
    }
}
