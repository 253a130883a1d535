"""The client for code that is not async: Django, Flask, scripts, steps that run in threads.

Written by ``make_sync.py`` out of ``client.py`` and ``handle.py``: change those, and run it.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ._codec import Duration
from ._transport import UNSET, Transport
from ._wire import completed, iterated
from .call import Call
from .client import Abide, StartOptions, Target, connected
from .contract import Signal
from .function import Function
from .graph import Graph
from .handle import Handle, Located
from .machine import Machine, Reply, Retry
from .models import (
    Change,
    End,
    EventRecord,
    GraphKept,
    HistoryEvent,
    Instance,
    Published,
    Receipt,
    SignalRecord,
    StartedOne,
    UpdateRecord,
    Waiter,
)
from .outcome import Scope, Start, StepRef

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import Unpack

C = TypeVar("C", bound="SyncAbide")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
X = TypeVar("X")

_List = list  # the client has a method of that name


class SyncAbide:
    """``Abide`` for code that is not async: the same methods, without ``await``.

    Threads may share one, and so may processes that are forked after it was made, as Gunicorn and Celery do: make one
    for a program. It needs no event loop; inside of one it would block it, and says so.

    ::

        abide = SyncAbide("http://127.0.0.1:7070")
        order = abide.start(Checkout, Order("kettle"), key="order:42")
        print(order.result())
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 10.0,
        verify: Any = True,
    ) -> None:
        self._abide = Abide._over(
            connected(url, token, timeout=timeout, patience=patience, verify=verify, blocking=True)
        )

    @classmethod
    def _over(cls: type[C], transport: Transport) -> C:
        """One that sends by that transport, which must be one that blocks."""
        made = cls.__new__(cls)
        made._abide = Abide._over(transport)
        return made

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        completed(self._abide.close())

    @property
    def urls(self) -> Sequence[str]:
        """The servers."""
        return self._abide.urls

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            warnings.warn(
                "SyncAbide is called in an event loop and blocks it: use `await` with Abide, or asyncio.to_thread",
                RuntimeWarning,
                stacklevel=3,
            )
        return completed(call)

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        return iterated(items)

    def handle(self, target: Target) -> SyncHandle[Any]:
        """A handle of an instance: by its key it is the newest run of that key, whichever that is when it is used."""
        return SyncHandle(self, self._abide.handle(target))

    @overload
    def start(self, what: type[Machine[S]], state: S, **options: Unpack[StartOptions]) -> SyncHandle[Any]: ...

    @overload
    def start(self, what: type[Machine[None]], **options: Unpack[StartOptions]) -> SyncHandle[Any]: ...

    @overload
    def start(
        self, what: Function[Concatenate[T, P], Coroutine[Any, Any, R]], state: T, **options: Unpack[StartOptions]
    ) -> SyncHandle[R]: ...

    @overload
    def start(self, what: Function[[], Coroutine[Any, Any, R]], **options: Unpack[StartOptions]) -> SyncHandle[R]: ...

    @overload
    def start(
        self, what: Function[Concatenate[T, P], R], state: T, **options: Unpack[StartOptions]
    ) -> SyncHandle[R]: ...

    @overload
    def start(self, what: Function[[], R], **options: Unpack[StartOptions]) -> SyncHandle[R]: ...

    @overload
    def start(self, what: str | Graph, state: Any = None, **options: Unpack[StartOptions]) -> SyncHandle[Any]: ...

    def start(
        self,
        what: Any,
        state: Any = None,
        *,
        key: str | None = None,
        version: int | None = None,
        step: StepRef | None = None,
        queue: str | None = None,
        priority: int | None = None,
        partition_key: str | None = None,
        unique_key: str | None = None,
        scope: Scope | None = None,
        unique_scope: Scope | None = None,
        due_at: datetime | None = None,
        delay: Duration | None = None,
        retry: Retry | None = None,
        step_timeout: Duration | None = None,
        max_deaths: int | None = None,
        or_existing: bool = False,
    ) -> SyncHandle[Any]:
        """Starts an instance of a machine, a job or a graph (whose input is the state).

        ``retry``, ``step_timeout`` and ``max_deaths`` take the place of what its machine declares: when a step that
        failed is tried again, as the same instance, how long one attempt may take, from its claim on, and how often a
        worker may die in one step before the instance fails.

        A state that does not match the machine, or an input that does not match its job, is ``NotJson``. A key that is
        taken is a ``Duplicate``; with ``or_existing`` its holder is answered, with ``is_new`` false.
        """
        return SyncHandle(
            self,
            self._run(
                self._abide.start(
                    what,
                    state,
                    key=key,
                    version=version,
                    step=step,
                    queue=queue,
                    priority=priority,
                    partition_key=partition_key,
                    unique_key=unique_key,
                    scope=scope,
                    unique_scope=unique_scope,
                    due_at=due_at,
                    delay=delay,
                    retry=retry,
                    step_timeout=step_timeout,
                    max_deaths=max_deaths,
                    or_existing=or_existing,
                )
            ),
        )

    def reserve(self, what: Any, key: str) -> SyncHandle[Any]:
        """Makes an instance with no run yet; a later start with that key opens it, with the same id."""
        return SyncHandle(self, self._run(self._abide.reserve(what, key)))

    def start_all(self, starts: Iterable[Start]) -> _List[StartedOne]:
        """Starts many in one transaction; what became of each, in order."""
        return self._run(self._abide.start_all(starts))

    def get(self, target: Target) -> Instance:
        """The instance: where it stands, what it waits for, whether that is healthy."""
        return self._run(self._abide.get(target))

    def list(
        self,
        *,
        status: str | None = None,
        machine: str | None = None,
        queue: str | None = None,
        key_prefix: str | None = None,
        wait_kind: str | None = None,
        waiting_for: str | None = None,
        liveness: str | None = None,
        parent: int | None = None,
        page: int | None = None,
    ) -> Iterator[Instance]:
        """The instances of which all that holds, page after page."""
        return self._each(
            self._abide.list(
                status=status,
                machine=machine,
                queue=queue,
                key_prefix=key_prefix,
                wait_kind=wait_kind,
                waiting_for=waiting_for,
                liveness=liveness,
                parent=parent,
                page=page,
            )
        )

    def history(self, target: Target) -> Iterator[HistoryEvent]:
        """What happened to it, in order."""
        return self._each(self._abide.history(target))

    def signals(
        self,
        target: Target | None = None,
        *,
        status: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> Iterator[SignalRecord]:
        """The records of its signals, refused ones too; without a target those of all instances, newest first."""
        return self._each(self._abide.signals(target, status=status, name=name, key=key))

    def updates(self, target: Target) -> Iterator[UpdateRecord]:
        """The records of its updates."""
        return self._each(self._abide.updates(target))

    def children(self, target: Target) -> Iterator[Instance]:
        """Its children."""
        return self._each(self._abide.children(target))

    def runs(self, target: Target) -> Iterator[Instance]:
        """The runs of its chain."""
        return self._each(self._abide.runs(target))

    def waits(
        self,
        *,
        kind: str | None = None,
        name: str | None = None,
        instance: int | str | None = None,
        key_prefix: str | None = None,
    ) -> Iterator[Waiter]:
        """Who waits for what."""
        return self._each(self._abide.waits(kind=kind, name=name, instance=instance, key_prefix=key_prefix))

    def events(self, *, type: str | None = None) -> Iterator[EventRecord]:
        """The events that are kept."""
        return self._each(self._abide.events(type=type))

    def workers(self) -> Any:
        """The workers, and what they hold."""
        return self._run(self._abide.workers())

    def queues(self) -> Any:
        """The queues, and what waits in them."""
        return self._run(self._abide.queues())

    def stats(self) -> Any:
        """Figures of the whole store."""
        return self._run(self._abide.stats())

    def ended(self, target: Target, *, wait: Duration | None = 0) -> End:
        """How it ended, or, with ``over`` false, that it had not when that time was up. None: waits for ever."""
        return self._run(self._abide.ended(target, wait=wait))

    @overload
    def result(self, target: Located[R], *, wait: Duration | None = None) -> R: ...

    @overload
    def result(self, target: Target, *, wait: Duration | None = None) -> Any: ...

    @overload
    def result(self, target: Target, kind: type[T], *, wait: Duration | None = None) -> T: ...

    def result(self, target: Target, kind: Any = UNSET, *, wait: Duration | None = None) -> Any:
        """Its result, read as that type; waits for it, so long at most.

        The handle of a job knows the type of its result. ``NotDone`` when it ended otherwise, ``NotYet`` when the time
        was up.
        """
        return self._run(self._abide.result(target, kind, wait=wait))

    def signal(
        self,
        target: Target,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
        hold_for: Duration | None = None,
    ) -> Receipt:
        """Sends a signal: with one value, or with arguments by place or by name, or with nothing.

        A refusal is ``Rejected``. With ``dedup`` it is sent once however often it is tried. ``hold_for`` holds it that
        long for the instance that starts with that key.
        """
        return self._run(self._abide.signal(target, name, payload, arguments=arguments, dedup=dedup, hold_for=hold_for))

    def signal_with_start(
        self,
        start: Start,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
    ) -> Receipt:
        """Sends a signal to the instance of that key, or starts one that has it already, in one commit."""
        return self._run(self._abide.signal_with_start(start, name, payload, arguments=arguments, dedup=dedup))

    @overload
    def update(
        self, target: Target, what: Call[R], /, *, request_id: str | None = None, wait: Duration | None = 30
    ) -> R: ...

    @overload
    def update(
        self,
        target: Target,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
        wait: Duration | None = 30,
    ) -> Any: ...

    @overload
    def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, Reply[R]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...

    @overload
    def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...

    @overload
    def update(
        self, target: Target, what: Callable[Concatenate[Any, Any, P], Reply[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    def update(
        self, target: Target, what: Callable[Concatenate[Any, Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    def update(self, target: Target, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Sends an update and answers what its handler answered; waits for it, 30 seconds at most unless it is said.

        It is named by the method that handles it, ``update(order, Checkout.note, "fragile", times=2)``, then the types
        of arguments and answer are known; with ``Call(Checkout.note, "fragile")`` where it needs ``request_id`` or
        ``wait``; or by its name with a list or a dict of arguments, ``update(order, "note", ["fragile"])``.

        ``UpdateFailed`` when the handler failed, ``Rejected`` when it was refused, ``NotYet`` when the time was up.
        """
        return self._run(self._abide.update(target, what, *args, **kwargs))

    @overload
    def send_update(self, target: Target, what: Call[Any], /, *, request_id: str | None = None) -> UpdateRecord: ...

    @overload
    def send_update(
        self,
        target: Target,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
    ) -> UpdateRecord: ...

    @overload
    def send_update(
        self, target: Target, what: Callable[Concatenate[Any, Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> UpdateRecord: ...

    def send_update(self, target: Target, what: Any, /, *args: Any, **kwargs: Any) -> UpdateRecord:
        """Sends an update and does not wait for its answer: ``update_record`` asks for it."""
        return self._run(self._abide.send_update(target, what, *args, **kwargs))

    def update_record(self, update_id: int, *, wait: Duration = 0) -> UpdateRecord:
        """The record of an update; waits for its answer, so long at most."""
        return self._run(self._abide.update_record(update_id, wait=wait))

    def publish(self, type: str, payload: Any = None, *, event_id: str | None = None) -> Published:
        """Publishes an event. With ``event_id`` it is one event however often it is tried."""
        return self._run(self._abide.publish(type, payload, event_id=event_id))

    def publish_all(self, events: Iterable[tuple[str, Any] | tuple[str, Any, str]]) -> _List[Published]:
        """Publishes many in one transaction: ``(type, payload)`` or ``(type, payload, event_id)`` each."""
        return self._run(self._abide.publish_all(events))

    def cancel(self, target: Target, reason: str = "", *, cascade: bool = True, force: bool = False) -> None:
        """Ends it as cancelled, with its children unless they are to be left.

        A workflow is notified first, and ends when it has cleaned up; ``force`` ends it at once.
        """
        self._run(self._abide.cancel(target, reason, cascade=cascade, force=force))

    def restart(self, target: Target, *, step: StepRef | None = None) -> SyncHandle[Any]:
        """Opens a new run of what failed or was cancelled, with its last state, where it ended or at that step."""
        return SyncHandle(self, self._run(self._abide.restart(target, step=step)))

    def repair(self, target: Target) -> bool:
        """Puts right what is broken about it; whether there was anything."""
        return self._run(self._abide.repair(target))

    def put_machine(self, name: str, version: int, declaration: Mapping[str, Any]) -> None:
        """Declares a machine whose code runs elsewhere. A worker does this by itself."""
        self._run(self._abide.put_machine(name, version, declaration))

    def put_graph(
        self, graph: Graph | str, steps: Iterable[Mapping[str, Any]] | Mapping[str, Any] | None = None
    ) -> GraphKept:
        """Keeps a graph: one that was built, or a name and its steps. What is wrong with it is ``Invalid.problems``."""
        return self._run(self._abide.put_graph(graph, steps))

    def stream(
        self, *, instance: int | str | None = None, types: Sequence[str] = (), last: str | None = None
    ) -> Iterator[Change]:
        """What changes, as it does, until it is left. A broken line is taken up again where it was.

        Of one instance: its history from the beginning, then what happens to it, and ``end`` when it has ended. Of
        the whole server: ``ready``, ``ended``, ``answered``, ``cancelled``, ``received``, ``due``; and ``reset`` when
        something was missed.
        """
        return self._each(self._abide.stream(instance=instance, types=types, last=last))


class SyncHandle(Located[R]):
    """An instance, and what can be done with it; see ``Handle``."""

    def __init__(self, abide: SyncAbide, handle: Handle[R]) -> None:
        self.__dict__.update(handle.__dict__)
        self.abide = abide
        self._handle = handle

    def get(self) -> Instance:
        """The instance: where it stands, what it waits for, whether that is healthy."""
        return self.abide._run(self._handle.get())

    def signal(
        self,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
        hold_for: Duration | None = None,
    ) -> Receipt:
        """Sends it a signal, as ``Abide.signal`` does."""
        return self.abide._run(self._handle.signal(name, payload, arguments=arguments, dedup=dedup, hold_for=hold_for))

    @overload
    def update(self, what: Call[X], /, *, request_id: str | None = None, wait: Duration | None = 30) -> X: ...

    @overload
    def update(
        self,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
        wait: Duration | None = 30,
    ) -> Any: ...

    @overload
    def update(
        self,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, Reply[X]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> X: ...

    @overload
    def update(
        self, what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, X]], /, *args: P.args, **kwargs: P.kwargs
    ) -> X: ...

    @overload
    def update(self, what: Callable[Concatenate[Any, Any, P], Reply[X]], /, *args: P.args, **kwargs: P.kwargs) -> X: ...

    @overload
    def update(self, what: Callable[Concatenate[Any, Any, P], X], /, *args: P.args, **kwargs: P.kwargs) -> X: ...

    def update(self, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Sends it an update and answers what its handler answered, as ``Abide.update`` does."""
        return self.abide._run(self._handle.update(what, *args, **kwargs))

    @overload
    def send_update(self, what: Call[Any], /, *, request_id: str | None = None) -> UpdateRecord: ...

    @overload
    def send_update(
        self, what: str, /, arguments: Sequence[Any] | Mapping[str, Any] = (), *, request_id: str | None = None
    ) -> UpdateRecord: ...

    @overload
    def send_update(
        self, what: Callable[Concatenate[Any, Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> UpdateRecord: ...

    def send_update(self, what: Any, /, *args: Any, **kwargs: Any) -> UpdateRecord:
        """Sends it an update and does not wait for its answer."""
        return self.abide._run(self._handle.send_update(what, *args, **kwargs))

    @overload
    def result(self, /, *, wait: Duration | None = None) -> R: ...

    @overload
    def result(self, kind: type[T], /, *, wait: Duration | None = None) -> T: ...

    def result(self, kind: Any = UNSET, /, *, wait: Duration | None = None) -> Any:
        """Its result, as ``Abide.result`` does."""
        return self.abide._run(self._handle.result(kind, wait=wait))

    def ended(self, *, wait: Duration | None = 0) -> End:
        """How it ended, as ``Abide.ended`` does."""
        return self.abide._run(self._handle.ended(wait=wait))

    def history(self) -> Iterator[HistoryEvent]:
        """What happened to it, in order."""
        return self.abide._each(self._handle.history())

    def signals(self) -> Iterator[SignalRecord]:
        """The records of its signals, refused ones too."""
        return self.abide._each(self._handle.signals())

    def updates(self) -> Iterator[UpdateRecord]:
        """The records of its updates."""
        return self.abide._each(self._handle.updates())

    def children(self) -> Iterator[Instance]:
        """Its children."""
        return self.abide._each(self._handle.children())

    def runs(self) -> Iterator[Instance]:
        """The runs of its chain."""
        return self.abide._each(self._handle.runs())

    def cancel(self, reason: str = "", *, cascade: bool = True, force: bool = False) -> None:
        """Ends it as cancelled, as ``Abide.cancel`` does."""
        self.abide._run(self._handle.cancel(reason, cascade=cascade, force=force))

    def restart(self, *, step: StepRef | None = None) -> SyncHandle[R]:
        """Opens a new run of it, as ``Abide.restart`` does."""
        return SyncHandle(self.abide, self.abide._run(self._handle.restart(step=step)))

    def repair(self) -> bool:
        """Puts right what is broken about it; whether there was anything."""
        return self.abide._run(self._handle.repair())
