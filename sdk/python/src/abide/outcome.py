"""What a step answers, and what is to be started."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

from ._codec import Duration, NotJson, from_json, milliseconds, to_json
from ._transport import UNSET

if TYPE_CHECKING:
    from .machine import Retry

#: A step: a method that is one, or its name.
StepRef = str | Callable[..., Any]
#: How the two sides of a condition are compared.
Operator = Literal["eq", "eq_typed", "ne", "gt", "gte", "lt", "lte", "in", "exists"]
#: What an event must say: ``{"order_id": 42}``, or ``[("amount", "gte", 100)]``; all of it.
Where = Mapping[str, Any] | Sequence[tuple[str, Operator, Any]]
#: In which statuses a key is taken.
Scope = Sequence[str]


@dataclass(frozen=True)
class Outcome:
    """What a step answers; made by ``next_``, ``done``, ``stop`` and their like, and by the context."""

    kind: str
    body: Mapping[str, Any]
    state: Any = UNSET

    @property
    def has_state(self) -> bool:
        """Whether it is committed with a state."""
        return self.kind not in ("done", "stop", "fail", "block")

    def wire(self, state: Any) -> dict[str, Any]:
        """As the server takes it; with that state, unless it has its own."""
        body = dict(self.body)
        if self.has_state:
            body["state"] = to_json(state if self.state is UNSET else self.state)
        return {self.kind: body}


def next_(step: StepRef, *, delay: Duration = 0, state: Any = UNSET) -> Outcome:
    """Goes to a step: now, or after a delay."""
    body: dict[str, Any] = {"step": step_name(step)}
    if delay:
        body["delay_ms"] = milliseconds(delay)
    return Outcome("next", body, state)


def retry(*, delay: Duration = 0, state: Any = UNSET) -> Outcome:
    """The same step again after a delay, one attempt on; what it was handed stays."""
    return Outcome("retry", {"delay_ms": milliseconds(delay)}, state)


def done(result: Any = None) -> Outcome:
    """Ends well, with a result."""
    return Outcome("done", {"result": to_json(result)})


def stop(reason: str) -> Outcome:
    """Ends badly."""
    return Outcome("stop", {"reason": _storable(str(reason))})


def fail(error: str | BaseException) -> Outcome:
    """The step failed: the machine's retry policy decides whether it runs again."""
    return Outcome("fail", {"error": error_text(error)})


def block(reason: str) -> Outcome:
    """This build cannot run the step: nothing is consumed, and the instance waits for a worker of another build."""
    return Outcome("block", {"reason": _storable(str(reason))})


def continue_as_new(step: StepRef, *, version: int | None = None, state: Any = UNSET) -> Outcome:
    """Closes this run and opens the next of its chain, of that version, with all messages that are pending."""
    body: dict[str, Any] = {"step": step_name(step)}
    if version is not None:
        body["version"] = version
    return Outcome("continue_as_new", body, state)


def error_text(error: str | BaseException) -> str:
    """An error as it is kept."""
    if isinstance(error, str):
        return _storable(error)
    text = _storable(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _storable(text: str) -> str:
    """A text without halves of characters, as names of files may have them: those cannot be sent."""
    return text.encode(errors="backslashreplace").decode()


def step_name(step: StepRef) -> str:
    """The name of a step."""
    if isinstance(step, str):
        return step
    found = getattr(step, "__abide_step__", None)
    if isinstance(found, str):
        return found
    name = getattr(step, "__qualname__", repr(step))
    raise TypeError(f"{name} is not a step: mark the method with @step, or give the name of one")


@dataclass(frozen=True)
class Event:
    """An event to wait for: its type, what it must say, and how far to look back for one that has come already."""

    type: str
    where: Where = ()
    lookback: Duration | None = None

    def wire(self) -> dict[str, Any]:
        """As the server takes it."""
        body: dict[str, Any] = {"type": self.type, "conditions": conditions(self.where)}
        if self.lookback is not None:
            body["lookback_ms"] = milliseconds(self.lookback)
        return body


def conditions(where: Where) -> list[dict[str, Any]]:
    """Conditions as the server takes them."""
    if isinstance(where, Mapping):
        return [{"left": left, "op": "eq", "right": to_json(right)} for left, right in where.items()]
    return [{"left": left, "op": op, "right": to_json(right)} for left, op, right in where]


@dataclass(frozen=True)
class Start:
    """Something to start: for ``start_all``, ``spawn`` and ``signal_with_start``.

    ``what`` is the class of a machine, a job, a task, a graph, or the name of a machine. ``retry``,
    ``step_timeout`` and ``max_deaths`` take the place of what the machine declares.
    """

    what: Any
    state: Any = None
    key: str | None = None
    version: int | None = None
    step: StepRef | None = None
    queue: str | None = None
    priority: int | None = None
    partition_key: str | None = None
    unique_key: str | None = None
    scope: Scope | None = None
    unique_scope: Scope | None = None
    due_at: datetime | None = None
    delay: Duration | None = None
    reserve: bool = False
    retry: Retry | None = None
    step_timeout: Duration | None = None
    max_deaths: int | None = None

    def wire(self) -> dict[str, Any]:
        """As the server takes it."""
        named = named_of(self.what)
        if self.reserve:
            return {"machine": named.get("machine"), "key": self.key, "reserve": True}
        state = self._checked()
        body: dict[str, Any] = dict(named)
        if "graph" in named:
            body["input"] = state
        else:
            body["state"] = state
        given = {
            "key": self.key,
            "version": self.version,
            "step": None if self.step is None else step_name(self.step),
            "queue": self.queue,
            "priority": self.priority,
            "partition_key": self.partition_key,
            "unique_key": self.unique_key,
            "scope": None if self.scope is None else list(self.scope),
            "unique_scope": None if self.unique_scope is None else list(self.unique_scope),
            "due_at": None if self.due_at is None else _utc(self.due_at),
            "delay_ms": None if self.delay is None else milliseconds(self.delay),
            "policy": self._policy(),
        }
        body.update({name: value for name, value in given.items() if value is not None})
        return body

    def _policy(self) -> dict[str, Any] | None:
        policy: dict[str, Any] = {}
        if self.retry is not None:
            policy["retry"] = self.retry.wire()
        if self.step_timeout is not None:
            policy["step_timeout_ms"] = milliseconds(self.step_timeout)
        if self.max_deaths is not None:
            policy["max_deaths"] = self.max_deaths
        return policy or None

    def _checked(self) -> Any:
        """The state as JSON, which the machine or the job can read: what it could not read would never run."""
        state = to_json(self.state)
        takes = getattr(self.what, "__abide_takes__", None)
        version, kind = (None, Any) if takes is None else takes()
        if self.version in (None, version):  # what another version takes is not known here
            try:
                from_json(kind, to_json(state))
            except NotJson as error:
                raise NotJson(f"{shown(self.what)} cannot be started with this: {error}") from None
            except Exception as error:  # its class does not take it
                said = f"{shown(self.what)} cannot be started with this: {error_text(error)}"
                raise NotJson(said) from error
        return state


def _utc(at: datetime) -> str:
    if at.tzinfo is None:
        raise ValueError(f"due_at {at} has no time zone: give one, like datetime.now(timezone.utc)")
    return at.astimezone(timezone.utc).isoformat()


def named_of(what: Any) -> dict[str, Any]:
    """What names a thing to start: a graph, or a machine with what is known of it, as it may not be declared yet."""
    if isinstance(what, str):
        return {"machine": what}
    named = getattr(what, "__abide_start__", None)
    if named is None:
        raise TypeError(f"{shown(what)} is nothing to start: {unmarked(what)}")
    return dict(named())


def shown(what: object) -> str:
    """A thing of the user's in a message: a function or a class by its name."""
    name = getattr(what, "__qualname__", None) or getattr(what, "__name__", None)
    return str(name).rpartition("<locals>.")[2] if name else repr(what)


def unmarked(what: object) -> str:
    """What to do about a thing that can be neither started nor run."""
    if inspect.isroutine(what):
        return 'mark the function with @job("name"), or with @task("name") if it is a task of graphs'
    if isinstance(what, type):
        return 'make it a machine: class Name(Machine[State], name="name")'
    return "give a machine's class or name, a job, a task or a graph"
