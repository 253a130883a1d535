"""Machines as classes, with steps as methods; and what a step is given."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from ._codec import Duration, NotJson, Unreadable, milliseconds
from ._transport import UNSET
from .contract import Signal, parameters_of_call
from .models import Child, Message
from .outcome import Event, Outcome, Start, StepRef, Where, fail, step_name

if TYPE_CHECKING:
    from .client import Abide

S = TypeVar("S")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Retry:
    """When a step that failed runs again: so many attempts (the first counts), the delay between them growing."""

    max_attempts: int
    delay: Duration = 1.0
    factor: float = 2.0
    max_delay: Duration | None = None

    def wire(self) -> dict[str, Any]:
        """As the server takes it."""
        body: dict[str, Any] = {
            "max_attempts": self.max_attempts,
            "delay_ms": milliseconds(self.delay),
            "factor": self.factor,
        }
        if self.max_delay is not None:
            body["max_delay_ms"] = milliseconds(self.max_delay)
        return body


@overload
def step(method: F, /) -> F: ...
@overload
def step(*, first: bool = False, name: str | None = None) -> Callable[[F], F]: ...
def step(method: Any = None, /, *, first: bool = False, name: str | None = None) -> Any:
    """Marks a method as a step. The first one is marked so, or is called ``start``."""

    def mark(function: F) -> F:
        function.__abide_step__ = name or function.__name__  # type: ignore[attr-defined]
        function.__abide_first__ = first  # type: ignore[attr-defined]
        return function

    return mark if method is None else mark(method)


@overload
def update(method: F, /) -> F: ...
@overload
def update(name: str, /) -> Callable[[F], F]: ...
def update(given: Any, /) -> Any:
    """Marks a method as the handler of an update; its parameters, after the context, are the update's contract."""

    def mark(function: F) -> F:
        function.__abide_update__ = given if isinstance(given, str) else function.__name__  # type: ignore[attr-defined]
        return function

    return mark if isinstance(given, str) else mark(given)


@dataclass(frozen=True)
class Reply(Generic[T]):
    """An update's answer, when the instance is also to do something else than it was doing."""

    result: T
    then: Outcome


class Context(Generic[S]):
    """What a step is given. Its state is stored as the step leaves it, unless the step fails."""

    def __init__(self, claim: dict[str, Any], state: S, abide: Abide, messages: Claimed) -> None:
        self.state: S = state
        self._claim = claim
        self._messages = messages
        #: The client of the worker.
        self.abide = abide
        #: Whether the claim was lost, by a cancel or because the lease ran out: what the step answers is dropped.
        self.lost = False

    @property
    def id(self) -> int:
        """The instance."""
        return int(self._claim["instance_id"])

    @property
    def key(self) -> str | None:
        """The instance's key."""
        return self._claim.get("key")

    @property
    def machine(self) -> str:
        """The machine's name."""
        return str(self._claim["machine"])

    @property
    def version(self) -> int:
        """The machine's version."""
        return int(self._claim["version"])

    @property
    def step(self) -> str:
        """The step's name."""
        return str(self._claim["step"])

    @property
    def step_sequence(self) -> int:
        """The number of this step in the run; the same when it is run again."""
        return int(self._claim["step_sequence"])

    @property
    def attempt(self) -> int:
        """How often this step was begun before: 0 the first time."""
        return int(self._claim.get("attempt", 0))

    @property
    def deaths(self) -> int:
        """In how many of those attempts the worker died; after ``max_deaths`` of them the instance fails."""
        return int(self._claim.get("deaths", 0))

    @property
    def cause(self) -> str:
        """What made the step run: start, next, retry, signal, event, timeout, children, update, reclaim."""
        return str(self._claim.get("cause", "start"))

    @property
    def token(self) -> str:
        """A token for the outside world: the same whenever this very step is run again, and never for another."""
        return f"abide-{self.id}-{self.step_sequence}"

    @property
    def timed_out(self) -> bool:
        """Whether what was waited for did not come in time."""
        return bool(self._claim.get("timed_out"))

    @property
    def messages(self) -> Sequence[Message]:
        """The signals and events that were waited for, in order."""
        return self._messages.awaited

    @property
    def inbox(self) -> Sequence[Message]:
        """All that is pending, in order; of an inbox of more than 256 KiB only `messages`."""
        return self._messages.inbox

    @property
    def inbox_omitted(self) -> int:
        """How many more are pending than `inbox` has; the client lists them."""
        return int(self._claim.get("inbox_omitted") or 0)

    @property
    def children(self) -> Sequence[Child]:
        """The children of the barrier that this step joins."""
        return self._messages.children

    @overload
    def awaited(self, what: Signal[T]) -> T: ...
    @overload
    def awaited(self, what: str | Event) -> Any: ...
    def awaited(self, what: Signal[Any] | str | Event) -> Any:
        """The first signal or event of that name that was waited for; a LookupError when none came."""
        found = self.awaited_all(what)
        if not found:
            came = ", ".join(dict.fromkeys(each.name for each in self.messages)) or "nothing"
            raise LookupError(f"{_name(what)} did not come (look at ctx.timed_out first): what came is {came}")
        return found[0]

    @overload
    def awaited_all(self, what: Signal[T]) -> list[T]: ...
    @overload
    def awaited_all(self, what: str | Event) -> list[Any]: ...
    def awaited_all(self, what: Signal[Any] | str | Event) -> list[Any]:
        """All signals or events of that name that were waited for, in order."""
        name, kind = _name(what), "event" if isinstance(what, Event) else None
        found = [each for each in self.messages if each.name == name and kind in (None, each.kind)]
        if not isinstance(what, Signal):
            return [each.payload for each in found]
        try:
            return [what.read(each) for each in found]
        except NotJson as error:
            raise Unreadable(f"the value of the signal {name} does not match its type: {error}") from error

    def wait_for(
        self, *what: Signal[Any] | str | Event, then: StepRef, timeout: Duration | None = None, state: Any = UNSET
    ) -> Outcome:
        """Parks until any of these signals or events comes, or the time is up; then runs that step."""
        body: dict[str, Any] = {
            "signals": [_name(each) for each in what if not isinstance(each, Event)],
            "events": [each.wire() for each in what if isinstance(each, Event)],
            "next": step_name(then),
        }
        if timeout is not None:
            body["timeout_ms"] = milliseconds(timeout)
        return Outcome("wait", body, state)

    def wait_for_event(
        self,
        type: str,
        *,
        then: StepRef,
        timeout: Duration,
        where: Where = (),
        lookback: Duration | None = None,
        state: Any = UNSET,
    ) -> Outcome:
        """Parks until an event of that type comes that says all that, or the time is up; then runs that step."""
        return self.wait_for(Event(type, where, lookback), then=then, timeout=timeout, state=state)

    def spawn(
        self,
        children: Iterable[Start],
        *,
        then: StepRef,
        at_least: int | None = None,
        timeout: Duration | None = None,
        state: Any = UNSET,
    ) -> Outcome:
        """Starts children and parks until all, or at least that many, have ended, or the time is up."""
        body: dict[str, Any] = {"children": [each.wire() for each in children], "next": step_name(then)}
        if at_least is not None:
            body["join"] = {"at_least": at_least}
        if timeout is not None:
            body["timeout_ms"] = milliseconds(timeout)
        return Outcome("spawn", body, state)


@dataclass(frozen=True)
class Claimed:
    """The messages and children that came with a claim."""

    awaited: Sequence[Message] = ()
    inbox: Sequence[Message] = ()
    children: Sequence[Child] = ()


def _name(what: Signal[Any] | str | Event) -> str:
    if isinstance(what, str):
        return what
    return what.type if isinstance(what, Event) else what.name


@dataclass(frozen=True)
class Declared:
    """What a machine's class says about itself."""

    name: str
    version: int
    queue: str | None
    retry: Retry | None
    step_timeout: Duration | None
    max_deaths: int | None
    history: bool
    first: str
    steps: dict[str, str]
    updates: dict[str, str]
    signals: list[Signal[Any]]
    state: Any

    def wire(self, owner: type) -> dict[str, Any]:
        """As the server takes it."""
        body: dict[str, Any] = {
            "signals": [each.accepts() for each in self.signals],
            "updates": [
                {"name": name, "parameters": parameters_of_call(getattr(owner, method), skip=2)}
                for name, method in self.updates.items()
            ],
            "first_step": self.first,
            "history": self.history,
        }
        if self.queue is not None:
            body["queue"] = self.queue
        if self.retry is not None:
            body["retry"] = self.retry.wire()
        if self.step_timeout is not None:
            body["step_timeout_ms"] = milliseconds(self.step_timeout) + STEP_TIMEOUT_MARGIN_MS
        if self.max_deaths is not None:
            body["max_deaths"] = self.max_deaths
        return body


#: The server's own limit of a step is that much later than the worker's, which asks ``on_error``: it is there for a
#: worker that hangs.
STEP_TIMEOUT_MARGIN_MS = 2000


class Machine(Generic[S]):
    """A machine: steps are methods, its state is an ``S`` (a dataclass, a typed dict, or plain JSON).

    ::

        class Checkout(Machine[Order], name="checkout", retry=Retry(max_attempts=5)):
            paid = Signal("payment_confirmed", amount=int)

            @step
            async def start(self, ctx: Context[Order]) -> Outcome:
                return ctx.wait_for(self.paid, timeout=3600, then=self.ship)

            @step
            async def ship(self, ctx: Context[Order]) -> Outcome:
                return done(ctx.awaited(self.paid).amount)

    ``max_deaths`` is how often a worker may die in one step before the instance fails; 5 unless given.

    A class without a name is a base for others. One object of the class serves all instances: their state is in the
    context, and nowhere else.
    """

    __abide__: ClassVar[Declared | None] = None

    def __init_subclass__(
        cls,
        *,
        name: str | None = None,
        version: int = 1,
        queue: str | None = None,
        retry: Retry | None = None,
        step_timeout: Duration | None = None,
        max_deaths: int | None = None,
        history: bool = True,
        **more: Any,
    ) -> None:
        super().__init_subclass__(**more)
        cls.__abide__ = None
        if name is None:
            return
        steps, updates, firsts, signals = _members(cls)
        if not steps:
            raise TypeError(f"{cls.__name__} has no steps: mark its methods with @step")
        if len(firsts) > 1:
            raise TypeError(f"{cls.__name__} has {len(firsts)} first steps ({', '.join(firsts)}): mark one")
        if not firsts and "start" not in steps:
            raise TypeError(f"{cls.__name__} has no first step: call one `start`, or mark it with @step(first=True)")
        cls.__abide__ = Declared(
            name=name,
            version=version,
            queue=queue,
            retry=retry,
            step_timeout=step_timeout,
            max_deaths=max_deaths,
            history=history,
            first=firsts[0] if firsts else "start",
            steps=steps,
            updates=updates,
            signals=signals,
            state=_state_of(cls),
        )

    @classmethod
    def __abide_start__(cls) -> dict[str, Any]:
        declared = declared_of(cls)
        named = {"machine": declared.name, "version": declared.version, "step": declared.first}
        return named if declared.queue is None else {**named, "queue": declared.queue}

    @classmethod
    def __abide_takes__(cls) -> tuple[int, Any]:
        declared = declared_of(cls)
        return declared.version, declared.state

    async def on_error(self, ctx: Context[S], error: Exception) -> Outcome:
        """What becomes of a step that failed. The state is as it was before the step.

        By default the retry policy decides; without one the instance ends badly.
        """
        return fail(error)


def declared_of(cls: type[Machine[Any]]) -> Declared:
    """What the class declares."""
    if cls.__abide__ is None:
        raise TypeError(f"{cls.__name__} has no name: write class {cls.__name__}(Machine, name=…)")
    return cls.__abide__


def _members(cls: type) -> tuple[dict[str, str], dict[str, str], list[str], list[Signal[Any]]]:
    """The steps and updates by name (their methods' names), the first steps, the signals."""
    steps: dict[str, str] = {}
    updates: dict[str, str] = {}
    firsts: list[str] = []
    signals: dict[str, Signal[Any]] = {}
    for attribute in dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base)):
        member = inspect.getattr_static(cls, attribute)
        if isinstance(member, Signal):
            signals[member.name] = member
        for mark, table in (("__abide_step__", steps), ("__abide_update__", updates)):
            name = getattr(member, mark, None)
            if isinstance(name, str):
                if name in table:
                    raise TypeError(f"{cls.__name__} has two methods for {name}: {table[name]} and {attribute}")
                table[name] = attribute
                if getattr(member, "__abide_first__", False):
                    firsts.append(name)
    return steps, updates, firsts, list(signals.values())


def _state_of(cls: type) -> Any:
    """The type of the state: what ``Machine[…]`` was given, here or in a base."""
    for base in cls.__mro__:
        for origin in getattr(base, "__orig_bases__", ()):
            if typing.get_origin(origin) is Machine:
                (state,) = typing.get_args(origin)
                return state
    return Any
