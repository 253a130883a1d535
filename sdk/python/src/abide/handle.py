"""A handle of one instance: what can be done with it, without naming it each time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ._codec import Duration
from ._transport import UNSET
from .call import Call
from .contract import Signal
from .machine import Reply
from .models import End, HistoryEvent, Instance, Receipt, SignalRecord, Started, UpdateRecord
from .outcome import StepRef

if TYPE_CHECKING:
    from .client import Abide

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X")


class Located(Generic[R]):
    """An instance that a handle stands for; ``R`` is the type of its result."""

    #: Its id or its key.
    target: int | str
    #: Its key, if it is known.
    key: str | None
    #: The run that was started, if it is known.
    run: int | None
    #: Whether it was started just now; false when ``or_existing`` found it.
    is_new: bool
    #: The type of its result.
    kind: Any
    #: What else the server answered when it was started.
    extra: Mapping[str, Any]

    def __init__(self, at: Started | int | str, kind: Any = Any) -> None:
        self.kind = kind
        self.extra = at.extra if isinstance(at, Started) else {}
        if isinstance(at, Started):
            self.target, self.key, self.run, self.is_new = at.id, at.key, at.run, at.is_new
        else:
            self.target, self.key, self.run, self.is_new = at, at if isinstance(at, str) else None, None, False

    @property
    def id(self) -> int:
        """Its id; a ``ValueError`` where only its key is known."""
        if isinstance(self.target, int):
            return self.target
        raise ValueError(f"only the key {self.target!r} of this instance is known: ask with `get`, which has the id")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r})"


class Handle(Located[R]):
    """An instance, and what can be done with it::

        order = await abide.start(Checkout, Order("kettle"), key="order:42")
        await order.signal(Checkout.paid, Payment(100))
        left: int = await order.update(Checkout.note, "fragile")
        print(await order.result())

    ``abide.start`` answers one, and ``abide.handle("order:42")`` makes one of a key or an id without asking the server.
    """

    def __init__(self, abide: Abide, at: Started | int | str, kind: Any = Any) -> None:
        super().__init__(at, kind)
        self.abide = abide

    async def get(self) -> Instance:
        """The instance: where it stands, what it waits for, whether that is healthy."""
        return await self.abide.get(self)

    async def signal(
        self,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
        hold_for: Duration | None = None,
    ) -> Receipt:
        """Sends it a signal, as ``Abide.signal`` does."""
        return await self.abide.signal(self, name, payload, arguments=arguments, dedup=dedup, hold_for=hold_for)

    @overload
    async def update(self, what: Call[X], /, *, request_id: str | None = None, wait: Duration | None = 30) -> X: ...
    @overload
    async def update(
        self,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
        wait: Duration | None = 30,
    ) -> Any: ...
    @overload
    async def update(
        self,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, Reply[X]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> X: ...
    @overload
    async def update(
        self,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, X]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> X: ...
    @overload
    async def update(
        self, what: Callable[Concatenate[Any, Any, P], Reply[X]], /, *args: P.args, **kwargs: P.kwargs
    ) -> X: ...
    @overload
    async def update(self, what: Callable[Concatenate[Any, Any, P], X], /, *args: P.args, **kwargs: P.kwargs) -> X: ...
    async def update(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Sends it an update and answers what its handler answered, as ``Abide.update`` does."""
        return await self.abide.update(self, what, *args, **kwargs)

    @overload
    async def send_update(self, what: Call[Any], /, *, request_id: str | None = None) -> UpdateRecord: ...
    @overload
    async def send_update(
        self,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
    ) -> UpdateRecord: ...
    @overload
    async def send_update(
        self, what: Callable[Concatenate[Any, Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> UpdateRecord: ...
    async def send_update(self, what: Any, /, *args: Any, **kwargs: Any) -> UpdateRecord:
        """Sends it an update and does not wait for its answer."""
        return await self.abide.send_update(self, what, *args, **kwargs)

    @overload
    async def result(self, /, *, wait: Duration | None = None) -> R: ...
    @overload
    async def result(self, kind: type[T], /, *, wait: Duration | None = None) -> T: ...
    async def result(self, kind: Any = UNSET, /, *, wait: Duration | None = None) -> Any:
        """Its result, as ``Abide.result`` does."""
        return await self.abide.result(self, self.kind if kind is UNSET else kind, wait=wait)

    async def ended(self, *, wait: Duration | None = 0) -> End:
        """How it ended, as ``Abide.ended`` does."""
        return await self.abide.ended(self, wait=wait)

    def history(self) -> AsyncIterator[HistoryEvent]:
        """What happened to it, in order."""
        return self.abide.history(self)

    def signals(self) -> AsyncIterator[SignalRecord]:
        """The records of its signals, refused ones too."""
        return self.abide.signals(self)

    def updates(self) -> AsyncIterator[UpdateRecord]:
        """The records of its updates."""
        return self.abide.updates(self)

    def children(self) -> AsyncIterator[Instance]:
        """Its children."""
        return self.abide.children(self)

    def runs(self) -> AsyncIterator[Instance]:
        """The runs of its chain."""
        return self.abide.runs(self)

    async def cancel(self, reason: str = "", *, cascade: bool = True, force: bool = False) -> None:
        """Ends it as cancelled, as ``Abide.cancel`` does."""
        await self.abide.cancel(self, reason, cascade=cascade, force=force)

    async def restart(self, *, step: StepRef | None = None) -> Handle[R]:
        """Opens a new run of it, as ``Abide.restart`` does."""
        again = await self.abide.restart(self, step=step)
        again.kind = self.kind
        return again

    async def repair(self) -> bool:
        """Puts right what is broken about it; whether there was anything."""
        return await self.abide.repair(self)
