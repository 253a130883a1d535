"""From a claim to an outcome: runs steps, updates, tasks and jobs, and answers for all that goes wrong in them."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Protocol

from ._codec import Duration, NotJson, from_json, milliseconds, to_json
from .client import Abide
from .contract import call_arguments
from .errors import Refused
from .function import RUN, Function
from .machine import Claimed, Context, Machine, Reply, declared_of
from .models import Child, Message, read
from .outcome import Outcome, done, error_text, fail, stop

log = logging.getLogger("abide")

#: An outcome as the server takes it.
Wire = dict[str, Any]


class StepTimeout(Exception):
    """A step took longer than its machine allows."""


class Unreadable(Exception):
    """The state, or a job's input, does not fit its type."""


class Code(Protocol):
    """What a worker has code for."""

    name: str
    version: int
    queue: str | None

    def declaration(self) -> dict[str, Any]:
        """What the server is told about it."""

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        """The outcome of a claim; never an error, but for being cancelled."""

    async def refused(self, ctx: Context[Any], claim: Wire, error: Refused) -> Wire:
        """The outcome after one that the server refused."""


def context_of(claim: Wire, abide: Abide) -> Context[Any]:
    """The context of a claim; its state is not read yet."""
    came = Claimed(
        awaited=[read(Message, one) for one in claim.get("awaited") or ()],
        inbox=[read(Message, one) for one in claim.get("inbox") or ()],
        children=[read(Child, one) for one in claim.get("children") or ()],
    )
    return Context(claim, None, abide, came)


class Caller:
    """Calls functions: coroutines in the loop, others in a thread."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads

    async def call(self, function: Callable[..., Any], *args: Any, limit: Duration | None = None, **kwargs: Any) -> Any:
        """What it returns."""
        if limit is None:
            return await self._call(function, args, kwargs)
        seconds = milliseconds(limit) / 1000
        running = asyncio.ensure_future(self._call(function, args, kwargs))
        try:
            await asyncio.wait([running], timeout=seconds)
        except asyncio.CancelledError:
            running.cancel()
            raise
        if running.done():
            return running.result()
        running.cancel()
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody asks any more
        raise StepTimeout(f"the step took longer than {seconds:g} s")

    async def _call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        made = await loop.run_in_executor(self._threads, functools.partial(context.run, function, *args, **kwargs))
        return await made if inspect.isawaitable(made) else made


class MachineCode:
    """A machine."""

    def __init__(self, machine: Machine[Any], caller: Caller) -> None:
        self._machine = machine
        self._caller = caller
        self._declared = declared_of(type(machine))
        self.name, self.version, self.queue = self._declared.name, self._declared.version, self._declared.queue

    def declaration(self) -> dict[str, Any]:
        return self._declared.wire(type(self._machine))

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            ctx.state = self._state(claim["state"])
        except Unreadable as error:
            return fail(error).wire(None)
        if claim.get("updates"):
            return await self._answer(ctx, claim["updates"])
        try:
            return await self._step(ctx)
        except Exception as error:
            _logged(ctx, error)
            return await self._on_error(ctx, claim, error)

    async def refused(self, ctx: Context[Any], claim: Wire, error: Refused) -> Wire:
        updates = claim.get("updates")
        if updates:
            said = f"the answer cannot be stored: {error}"
            return {"answer": {"updates": [{"update_id": one["update_id"], "error": said} for one in updates]}}
        return await self._on_error(ctx, claim, error)

    def _state(self, state: Any) -> Any:
        try:
            return from_json(self._declared.state, copy.deepcopy(state))
        except NotJson as error:
            raise Unreadable(f"the state of {self.name} does not fit its type: {error}") from error

    async def _step(self, ctx: Context[Any]) -> Wire:
        method = self._declared.steps.get(ctx.step)
        if method is None:
            has = ", ".join(self._declared.steps)
            raise LookupError(f"{self.name} version {self.version} has no step {ctx.step}: it has {has}")
        function = getattr(self._machine, method)
        outcome = await self._caller.call(function, ctx, limit=self._declared.step_timeout)
        return _wired(outcome, ctx.state, f"step {ctx.step}")

    async def _on_error(self, ctx: Context[Any], claim: Wire, error: Exception) -> Wire:
        try:
            ctx.state = self._state(claim["state"])
            outcome = await self._caller.call(self._machine.on_error, ctx, error)
            return _wired(outcome, ctx.state, "on_error")
        except Exception as second:
            _logged(ctx, second)
            return stop(f"{error_text(error)}; and its error handler failed: {error_text(second)}").wire(None)

    async def _answer(self, ctx: Context[Any], updates: list[Wire]) -> Wire:
        """Answers updates, each on the state that the last one left; one that fails changes nothing."""
        answers: list[Wire] = []
        state = before = to_json(ctx.state)
        then: Wire | None = None
        for update in updates:
            answer: Wire = {"update_id": update["update_id"]}
            try:
                ctx.state = self._state(state)
                answer["result"], then = await self._update(ctx, update)
                state = to_json(ctx.state)
            except Exception as error:
                _logged(ctx, error)
                answer = {"update_id": update["update_id"], "error": error_text(error)}
            answers.append(answer)
            if then is not None:
                break  # what comes after it is answered where the instance then stands
        body: Wire = {"updates": answers}
        if state != before:
            body["state"] = state
        if then is not None:
            body["then"] = then
        return {"answer": body}

    async def _update(self, ctx: Context[Any], update: Wire) -> tuple[Any, Wire | None]:
        method = self._declared.updates.get(update["name"])
        if method is None:
            raise LookupError(f"{self.name} version {self.version} has no handler for the update {update['name']}")
        function = getattr(self._machine, method)
        args, kwargs = call_arguments(getattr(type(self._machine), method), 2, update.get("arguments"))
        result = await self._caller.call(function, ctx, *args, **kwargs)
        if isinstance(result, Reply):
            return to_json(result.result), _wired(result.then, ctx.state, f"update {update['name']}")
        return to_json(result), None


class FunctionCode:
    """A task or a job."""

    def __init__(self, function: Function[..., Any], caller: Caller) -> None:
        self._function = function
        self._caller = caller
        self.name, self.version, self.queue = function.machine, 1, function.queue

    def declaration(self) -> dict[str, Any]:
        return self._function.wire()

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            if ctx.step != RUN:
                raise LookupError(f"{self.name} has one step, `{RUN}`, and no {ctx.step}")
            return await self._run(ctx, claim)
        except Unreadable as error:
            return stop(str(error)).wire(None)  # it is the same the next time
        except Exception as error:
            _logged(ctx, error)
            return fail(error).wire(None)

    async def refused(self, ctx: Context[Any], claim: Wire, error: Refused) -> Wire:
        return fail(error).wire(None)

    async def _run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            ctx.state = from_json(self._function.input, claim["state"], ".input")
        except NotJson as error:
            raise Unreadable(f"what {self.name} was given does not fit: {error}") from error
        args = [ctx.state, ctx][: self._function.arity]
        result = await self._caller.call(self._function.code, *args, limit=self._function.timeout)
        return _wired(result if isinstance(result, Outcome) else done(result), ctx.state, self.name)


def _wired(outcome: object, state: Any, of: str) -> Wire:
    if not isinstance(outcome, Outcome):
        raise TypeError(
            f"{of} returned {type(outcome).__name__}: return an outcome, made by next_, done, stop, ctx.wait_for …"
        )
    return outcome.wire(state)


def _logged(ctx: Context[Any], error: Exception) -> None:
    log.warning(
        "%s %s, step %s, attempt %s: %s", ctx.machine, ctx.id, ctx.step, ctx.attempt, error_text(error), exc_info=error
    )
