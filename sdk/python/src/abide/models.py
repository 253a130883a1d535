"""What servers answer, as frozen dataclasses. Fields that this release does not know are kept in ``extra``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from ._codec import NotJson, from_json
from .errors import Broken, Problem

A = TypeVar("A", bound="Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What all answers share."""

    extra: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def read(kind: type[A], body: Any) -> A:
    """An answer of that kind, out of the body of a response."""
    try:
        made: A = from_json(kind, body)
    except NotJson as error:
        raise Broken(f"the server's answer is not understood: {error}") from error
    known = {each.name for each in dataclasses.fields(kind)}
    more = {name: value for name, value in body.items() if name not in known}
    return dataclasses.replace(made, extra=more) if more else made


@dataclass(frozen=True, slots=True)
class Started(Answer):
    """An instance that was started, or, with ``is_new`` false, was there."""

    id: int
    key: str | None = None
    run: int | None = None
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class StartedOne(Answer):
    """What became of one start of a batch: ``id``, or ``duplicate_of``, or ``error``."""

    id: int | None = None
    duplicate_of: int | None = None
    error: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wait(Answer):
    """What an instance waits for, or was woken from.

    ``waits`` lists the waits of a workflow's operations: ``operation``, ``kind``, ``name``, ``id``, ``deadline`` and
    ``command_id``. ``resume_source`` says what has ended the wait, as ``command_id`` and ``kind``, until that is
    applied.
    """

    kind: str
    id: Any = None
    names: Sequence[str] = ()
    events: Sequence[Mapping[str, Any]] = ()
    waits: Sequence[Mapping[str, Any]] = ()
    resume_source: Mapping[str, Any] | None = None
    since: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Instance(Answer):
    """An instance. ``step`` is the one that runs next, ``liveness`` where it stands in one word.

    When it is not well, ``liveness_reason`` says why, ``liveness_code`` says it for programs, and
    ``liveness_command_id`` is the signal or update that it is about. All three are ``None`` when it is well.
    """

    id: int
    machine: str
    version: int
    status: str
    key: str | None = None
    step: str | None = None
    state: Any = None
    result: Any = None
    last_error: str | None = None
    queue: str = "default"
    priority: int = 0
    attempt: int = 0
    deaths: int = 0
    run: int = 1
    first_id: int | None = None
    step_sequence: int = 0
    cause: str | None = None
    timed_out: bool = False
    children_pending: int = 0
    signals_pending: int = 0
    updates_pending: int = 0
    message_cursor: int = 0
    due_at: datetime | None = None
    parent_id: int | None = None
    partition_key: str | None = None
    unique_key: str | None = None
    policy: dict[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    finished_at: datetime | None = None
    wait: Wait | None = None
    liveness: str = ""
    liveness_reason: str | None = None
    liveness_code: str | None = None
    liveness_command_id: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.status in ("done", "failed", "cancelled", "continued")


@dataclass(frozen=True, slots=True)
class HistoryEvent(Answer):
    """Something that happened to an instance."""

    seq: int
    kind: str
    at: datetime | None = None
    data: Any = None


@dataclass(frozen=True, slots=True)
class SignalRecord(Answer):
    """The record of a signal, accepted or refused.

    ``reason`` says why it was refused, and ``validation_errors`` what is wrong with its arguments, by field.
    """

    id: int
    name: str
    status: str
    kind: str = "signal"
    outcome: str | None = None
    reason: str | None = None
    instance_id: int | None = None
    key: str | None = None
    message_sequence: int | None = None
    command_sequence: int | None = None
    step_sequence: int | None = None
    operation: int | None = None
    graph_step: str | None = None
    wait_id: Any = None
    arguments: Any = None
    validation_errors: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    dedup_key: str | None = None
    source: str | None = None
    claimed_source: str | None = None
    received_at: datetime | None = None
    held_until: datetime | None = None
    applied_at: datetime | None = None
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Receipt(Answer):
    """What became of a signal."""

    outcome: str
    command_id: int | None = None
    instance_id: int | None = None
    key: str | None = None
    message_sequence: int | None = None
    command_sequence: int | None = None
    duplicate: bool = False
    reason: str | None = None
    started: bool = False
    similar: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateRecord(Answer):
    """The record of an update: ``accepted``, then ``completed`` with a result or ``failed`` with an error.

    One that was refused is ``rejected``: ``reason`` says why, and ``validation_errors`` what is wrong with its
    arguments, by field.
    """

    update_id: int
    update_status: str
    result: Any = None
    error: str | None = None
    outcome: str | None = None
    name: str | None = None
    reason: str | None = None
    instance_id: int | None = None
    key: str | None = None
    message_sequence: int | None = None
    command_sequence: int | None = None
    arguments: Any = None
    validation_errors: Mapping[str, Sequence[Problem]] = field(default_factory=dict)
    request_id: str | None = None
    received_at: datetime | None = None
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class End(Answer):
    """How an instance ended, or that it has not (``over`` is false)."""

    id: int
    status: str
    result: Any = None
    last_error: str | None = None
    over: bool = True


@dataclass(frozen=True, slots=True)
class Published(Answer):
    """What became of an event."""

    event_id: str | None = None
    matched: int = 0
    duplicate: bool = False
    unmatched: bool = False
    error: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class EventRecord(Answer):
    """An event that is kept."""

    type: str
    event_id: str
    payload: Any = None
    published_at: datetime | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class Waiter(Answer):
    """Who waits for what."""

    instance_id: int
    kind: str
    name: str | None = None
    key: str | None = None
    conditions: Sequence[Mapping[str, Any]] | None = None
    wait_id: Any = None
    operation: int | None = None
    since: datetime | None = None
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class GraphKept(Answer):
    """A graph as the server keeps it."""

    name: str
    hash: str


@dataclass(frozen=True, slots=True)
class Change(Answer):
    """Something that changed, from the stream. ``id`` is where to resume."""

    id: str
    type: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Message(Answer):
    """A signal or an event that a step was handed."""

    id: int
    kind: str
    name: str
    payload: Any = None
    arguments: Any = None
    message_sequence: int | None = None
    command_sequence: int | None = None
    received_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Child(Answer):
    """A child of the barrier that a step joins."""

    id: int
    machine: str
    status: str
    key: str | None = None
    state: Any = None
    result: Any = None
    last_error: str | None = None
