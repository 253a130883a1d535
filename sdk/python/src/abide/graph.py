"""Graphs as data: what comes after what. The server advances them; their tasks are run by workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ._codec import Duration, milliseconds
from .function import Function
from .machine import Retry
from .outcome import Operator, Where, conditions, shown, unmarked

#: Steps that a step comes after.
After = str | Sequence[str]


class Condition(TypedDict):
    """``left op right``: on the left a path into the event, on the right a value or a reference."""

    left: str
    op: Operator
    right: Any


class _SkipIf(TypedDict):
    step: str
    field: str
    op: Operator
    value: Any


class _WaitForEventBase(TypedDict):
    event: str
    match: Condition | list[Condition]
    timeout_ms: int


class _WaitForEvent(_WaitForEventBase, total=False):
    lookback_ms: int


class _WaitForSignal(TypedDict, total=False):
    signal: str
    timeout_ms: int


class _Sleep(TypedDict):
    duration_ms: int


class _StepBase(TypedDict):
    name: str


class GraphStep(_StepBase, total=False):
    """A step of a graph, as ``PUT /v1/graphs/{name}`` takes it."""

    after: list[str]
    skip_if: _SkipIf
    task: str
    timeout_ms: int
    schedule_timeout_ms: int
    retry: dict[str, Any]
    queue: str
    wait_for_event: _WaitForEvent
    wait_for_signal: _WaitForSignal
    sleep: _Sleep
    graph: str


class Reference(str):
    """The right side of a condition that is looked up when the wait is opened."""


def input_(path: str) -> Reference:
    """The right side of a condition: a place in the run's input."""
    return Reference(f"input.{path}")


def output(step: str, path: str) -> Reference:
    """The right side of a condition: a path in the output of a step."""
    return Reference(f"step.{step}.output.{path}")


class Graph:
    """A graph by its name, and its steps::

        graph = Graph("webhook-handler")
        graph.task("create-order", retry=Retry(max_attempts=3))
        graph.wait_for_event("payment", "payment.received", timeout=3600, after="create-order",
                             where=[("order_id", "eq", output("create-order", "id"))])
        graph.task("fulfill", after="payment", skip_if=("payment", "timeout", "eq", True))
        await abide.put_graph(graph)

    On the right of a condition, a text is a constant unless it is made by ``input_`` or ``output``. A graph without
    steps stands for one that the server has already.
    """

    def __init__(self, name: str, steps: Iterable[GraphStep] = ()) -> None:
        self.name = name
        self.steps: list[GraphStep] = list(steps)

    def __abide_start__(self) -> dict[str, Any]:
        return {"graph": self.name}

    def task(
        self,
        step: str | Function[..., Any],
        task: str | Function[..., Any] | None = None,
        *,
        after: After = (),
        skip_if: tuple[str, str, Operator, Any] | None = None,
        timeout: Duration | None = None,
        schedule_timeout: Duration | None = None,
        retry: Retry | None = None,
        queue: str | None = None,
    ) -> Graph:
        """A task; the step is called as the task is, unless it is named.

        ``timeout`` is how long one attempt may take, from its claim by a worker on; ``schedule_timeout`` bounds the
        whole, with the waits in the queue, all attempts and the delays between them.
        """
        made = _step(_task_name(step), after, skip_if)
        made["task"] = _task_name(step if task is None else task)
        if timeout is not None:
            made["timeout_ms"] = milliseconds(timeout)
        if schedule_timeout is not None:
            made["schedule_timeout_ms"] = milliseconds(schedule_timeout)
        if retry is not None:
            made["retry"] = retry.wire()
        if queue is not None:
            made["queue"] = queue
        return self._add(made)

    def wait_for_event(
        self,
        step: str,
        event: str,
        *,
        timeout: Duration,
        where: Where = (),
        lookback: Duration | None = None,
        after: After = (),
        skip_if: tuple[str, str, Operator, Any] | None = None,
    ) -> Graph:
        """Waits for an event; comes to what it says, or to ``{"timeout": true}``."""
        made = _step(step, after, skip_if)
        match: list[Condition] = [
            {"left": each["left"], "op": each["op"], "right": _right(each["right"])} for each in conditions(where)
        ]
        made["wait_for_event"] = {"event": event, "match": match, "timeout_ms": milliseconds(timeout)}
        if lookback is not None:
            made["wait_for_event"]["lookback_ms"] = milliseconds(lookback)
        return self._add(made)

    def wait_for_signal(
        self,
        step: str,
        signal: str,
        *,
        timeout: Duration | None = None,
        after: After = (),
        skip_if: tuple[str, str, Operator, Any] | None = None,
    ) -> Graph:
        """Waits for a signal to the run; comes to what it was sent with, or to ``{"timeout": true}``."""
        made = _step(step, after, skip_if)
        made["wait_for_signal"] = {"signal": signal}
        if timeout is not None:
            made["wait_for_signal"]["timeout_ms"] = milliseconds(timeout)
        return self._add(made)

    def sleep(
        self, step: str, duration: Duration, *, after: After = (), skip_if: tuple[str, str, Operator, Any] | None = None
    ) -> Graph:
        """Waits for nothing but time; comes to null."""
        made = _step(step, after, skip_if)
        made["sleep"] = {"duration_ms": milliseconds(duration)}
        return self._add(made)

    def graph(
        self,
        step: str,
        graph: str | Graph,
        *,
        after: After = (),
        skip_if: tuple[str, str, Operator, Any] | None = None,
    ) -> Graph:
        """A step that is a graph of its own; comes to what that one comes to."""
        made = _step(step, after, skip_if)
        made["graph"] = graph if isinstance(graph, str) else graph.name
        return self._add(made)

    def _add(self, step: GraphStep) -> Graph:
        self.steps.append(step)
        return self


def _task_name(task: str | Function[..., Any]) -> str:
    if isinstance(task, str):
        return task
    if not isinstance(task, Function):
        raise TypeError(f"{shown(task)} is not a task: {unmarked(task)}")
    return task.machine.removeprefix("task/")


def _step(name: str, after: After, skip_if: tuple[str, str, Operator, Any] | None) -> GraphStep:
    made: GraphStep = {"name": name}
    names = [after] if isinstance(after, str) else list(after)
    if names:
        made["after"] = names
    if skip_if is not None:
        step, field, op, value = skip_if
        made["skip_if"] = {"step": step, "field": field, "op": op, "value": value}
    return made


def _right(value: Any) -> Any:
    """A text that is not a reference is written as a constant."""
    return {"const": value} if isinstance(value, str) and not isinstance(value, Reference) else value


def steps_of(graph: Graph | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[Any]:
    """The steps of a graph, however it is given."""
    if isinstance(graph, Graph):
        return list(graph.steps)
    if isinstance(graph, Mapping):
        return list(graph["steps"])
    return list(graph)
