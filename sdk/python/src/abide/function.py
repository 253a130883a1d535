"""Tasks of graphs and plain jobs: one function each."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from ._codec import Duration, milliseconds
from .machine import STEP_TIMEOUT_MARGIN_MS, Retry
from .outcome import Outcome

P = ParamSpec("P")
R = TypeVar("R")

#: The one step of a job or a task.
RUN = "run"


class Function(Generic[P, R]):
    """A function that workers run: called as it is, it is the function it was made of."""

    def __init__(
        self,
        code: Callable[P, R],
        machine: str,
        retry: Retry | None,
        queue: str | None,
        timeout: Duration | None,
        max_deaths: int | None = None,
    ) -> None:
        self.code = code
        self.machine = machine
        self.retry = retry
        self.queue = queue
        self.timeout = timeout
        self.max_deaths = max_deaths
        self.__doc__ = code.__doc__
        self.__name__ = getattr(code, "__name__", machine)
        takes = inspect.signature(code).parameters
        if len(takes) > 2:
            raise TypeError(
                f"{self.__name__} takes {len(takes)} parameters: a job takes its input, and may take the context"
            )
        self.arity = len(takes)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.code(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self.machine}>"

    @property
    def input(self) -> Any:
        """The type of what it takes."""
        if not self.arity:
            return Any
        hints = typing.get_type_hints(self.code)
        return hints.get(next(iter(inspect.signature(self.code).parameters)), Any)

    @property
    def output(self) -> Any:
        """The type of what it comes to; anything where it does not say, or may end by an outcome."""
        kind = typing.get_type_hints(self.code).get("return", Any)
        return Any if Outcome in (kind, *typing.get_args(kind)) else kind

    def __abide_takes__(self) -> tuple[int, Any]:
        return 1, self.input

    def __abide_start__(self) -> dict[str, Any]:
        named = {"machine": self.machine, "version": 1, "step": RUN}
        return named if self.queue is None else {**named, "queue": self.queue}

    def wire(self) -> dict[str, Any]:
        """Its declaration, as the server takes it."""
        body: dict[str, Any] = {"signals": [], "updates": [], "first_step": RUN}
        if self.queue is not None:
            body["queue"] = self.queue
        if self.retry is not None:
            body["retry"] = self.retry.wire()
        if self.timeout is not None:
            body["step_timeout_ms"] = milliseconds(self.timeout) + STEP_TIMEOUT_MARGIN_MS
        if self.max_deaths is not None:
            body["max_deaths"] = self.max_deaths
        return body


def task(name: str, /) -> Callable[[Callable[P, R]], Function[P, R]]:
    """A task of graphs: takes the step's input, returns its output. The graph says how often it is tried, and how long.

    A second parameter, if there is one, is the context.
    """

    def make(code: Callable[P, R]) -> Function[P, R]:
        return Function(code, f"task/{name}", None, None, None)

    return make


def job(
    name: str,
    /,
    *,
    retry: Retry | None = None,
    queue: str | None = None,
    timeout: Duration | None = None,
    max_deaths: int | None = None,
) -> Callable[[Callable[P, R]], Function[P, R]]:
    """A job: one function, with a retry policy. A second parameter, if there is one, is the context.

    ``max_deaths`` is how often a worker may die in it before it fails; 5 unless given.
    """

    def make(code: Callable[P, R]) -> Function[P, R]:
        return Function(code, name, retry, queue, timeout, max_deaths)

    return make
