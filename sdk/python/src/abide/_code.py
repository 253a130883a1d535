"""From a claim to an outcome: runs steps, updates, tasks and jobs, and answers for all that goes wrong in them."""

from __future__ import annotations

import copy
import logging
from typing import Any, Protocol

from ._calling import StepTimeout, call
from ._codec import NotJson, Unreadable, from_json, to_json
from .client import Abide
from .contract import call_arguments
from .function import RUN, Function
from .machine import Claimed, Context, Machine, Reply, declared_of
from .models import Child, Message, read
from .outcome import Outcome, block, done, error_text, fail, stop

log = logging.getLogger("abide")

#: An outcome as the server takes it.
Wire = dict[str, Any]


class Code(Protocol):
    """What a worker has code for."""

    name: str
    version: int
    queue: str | None

    def declaration(self) -> dict[str, Any]:
        """Its declaration for the server."""

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        """The outcome of a claim; never an error, but for being cancelled."""

    async def refused(self, ctx: Context[Any], claim: Wire, error: Exception) -> Wire:
        """The outcome after one that the server refused."""


def context_of(claim: Wire, abide: Abide) -> Context[Any]:
    """The context of a claim; its state is not read yet."""
    came = Claimed(
        awaited=[read(Message, one) for one in claim.get("awaited") or ()],
        inbox=[read(Message, one) for one in claim.get("inbox") or ()],
        children=[read(Child, one) for one in claim.get("children") or ()],
    )
    return Context(claim, None, abide, came)


class MachineCode:
    """A machine."""

    def __init__(self, machine: Machine[Any]) -> None:
        self._machine = machine
        self._declared = declared_of(type(machine))
        self.name, self.version, self.queue = self._declared.name, self._declared.version, self._declared.queue

    def declaration(self) -> dict[str, Any]:
        return self._declared.wire(type(self._machine))

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            ctx.state = self._state(claim["state"])
            if not claim.get("updates"):
                self._known(ctx.step)
        except Unreadable as error:
            return _blocked(ctx, error)
        try:
            if claim.get("updates"):
                return await self._answer(ctx, claim["updates"])
            return await self._step(ctx)
        except Exception as error:
            why = _unreadable(error)
            if why is not None:
                return _blocked(ctx, why)
            _logged(ctx, error)
            return await self.refused(ctx, claim, error)

    async def refused(self, ctx: Context[Any], claim: Wire, error: Exception) -> Wire:
        updates = claim.get("updates")
        if updates:
            said = f"the answer cannot be stored: {error}"
            return {"answer": {"updates": [{"update_id": one["update_id"], "error": said} for one in updates]}}
        return await self._on_error(ctx, claim, error)

    def _state(self, state: Any) -> Any:
        try:
            return from_json(self._declared.state, copy.deepcopy(state))
        except NotJson as error:
            raise Unreadable(f"the state of {self.name} does not match its type: {error}") from error
        except Exception as error:  # its class does not take it, or it is nested too deeply
            raise Unreadable(f"the state of {self.name} cannot be read: {error_text(error)}") from error

    def _known(self, step: str) -> str:
        method = self._declared.steps.get(step)
        if method is None:
            has = ", ".join(self._declared.steps)
            raise Unreadable(f"{self.name} version {self.version} has no step {step!r}; its steps are {has}")
        return method

    async def _step(self, ctx: Context[Any]) -> Wire:
        function = getattr(self._machine, self._known(ctx.step))
        try:
            outcome = await call(function, ctx, limit=self._declared.step_timeout)
        except StepTimeout:
            ctx.lost = True  # so that a thread can see it
            raise
        return _wired(outcome, ctx.state, f"step {ctx.step}")

    async def _on_error(self, ctx: Context[Any], claim: Wire, error: Exception) -> Wire:
        ctx = copy.copy(ctx)  # the other one may still be in the hands of a thread
        ctx.lost = False
        try:
            ctx.state = self._state(claim["state"])
            outcome = await call(self._machine.on_error, ctx, error)
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
                _logged(ctx, error, logging.INFO)  # its sender is answered with it
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
        result = await call(function, ctx, *args, **kwargs)
        if isinstance(result, Reply):
            return to_json(result.result), _wired(result.then, ctx.state, f"update {update['name']}")
        return to_json(result), None


class FunctionCode:
    """A task or a job."""

    def __init__(self, function: Function[..., Any]) -> None:
        self._function = function
        self.name, self.version, self.queue = function.machine, 1, function.queue

    def declaration(self) -> dict[str, Any]:
        return self._function.wire()

    async def run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            if ctx.step != RUN:
                raise Unreadable(f"{self.name} has no step {ctx.step!r}; its step is {RUN}")
            return await self._run(ctx, claim)
        except Unreadable as error:
            return _blocked(ctx, error)
        except Exception as error:
            _logged(ctx, error)
            return fail(error).wire(None)

    async def refused(self, ctx: Context[Any], claim: Wire, error: Exception) -> Wire:
        return fail(error).wire(None)

    async def _run(self, ctx: Context[Any], claim: Wire) -> Wire:
        try:
            ctx.state = from_json(self._function.input, claim["state"], ".input")
        except NotJson as error:
            raise Unreadable(f"the input of {self.name} does not match its type: {error}") from error
        args = [ctx.state, ctx][: self._function.arity]
        try:
            result = await call(self._function.code, *args, limit=self._function.timeout)
        except StepTimeout:
            ctx.lost = True  # so that a thread can see it
            raise
        return _wired(result if isinstance(result, Outcome) else done(result), ctx.state, self.name)


def _unreadable(error: BaseException) -> Unreadable | None:
    """Why this code cannot read what a step was handed, when the step failed of that."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, Unreadable):
            return cause
        seen.add(id(cause))
        cause = cause.__cause__
    return None


def _blocked(ctx: Context[Any], why: Unreadable) -> Wire:
    """Leaves an instance to another build: nothing is consumed and nothing is counted."""
    subject = f"{ctx.machine} {ctx.id}, step {ctx.step}"
    log.warning("%s: this build cannot run it, so it waits for another build: %s", subject, why)
    return block(str(why)).wire(None)


def _wired(outcome: object, state: Any, of: str) -> Wire:
    if not isinstance(outcome, Outcome):
        raise TypeError(
            f"{of} returned {type(outcome).__name__}: return an outcome, made by next_, done, stop, ctx.wait_for …"
        )
    return outcome.wire(state)


#: The errors that were logged with their traceback, by where they were raised.
_traced: set[tuple[Any, ...]] = set()
#: Not more of them are remembered.
_TRACED_MAX = 1000


def _logged(ctx: Context[Any], error: Exception, level: int = logging.WARNING) -> None:
    """Logs an error in one line; with its traceback when it is the first of its kind from its place."""
    if not log.isEnabledFor(level):
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (trace.tb_frame.f_code, trace.tb_lineno) if trace is not None else None
    kind = (ctx.machine, ctx.step, type(error), place)
    is_new = kind not in _traced
    if is_new:
        if len(_traced) >= _TRACED_MAX:
            _traced.clear()
        _traced.add(kind)
    text = f"{ctx.machine} {ctx.id}, step {ctx.step}, attempt {ctx.attempt}: {error_text(error)}"
    log.log(level, "%s", text, exc_info=error if is_new else None)
