"""The client: what an application calls."""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, overload

from ._codec import Duration, from_json, milliseconds, to_json
from ._sse import server_sent
from ._transport import UNSET, Backoff, Transport, quoted
from .call import Call, prepared
from .contract import Signal
from .errors import AbideError, Duplicate, Invalid, NotDone, NotYet, Unavailable, UpdateFailed
from .function import Function
from .graph import Graph, steps_of
from .handle import Handle, Located
from .machine import Machine, Reply, Retry
from .models import (
    Answer,
    Change,
    End,
    EventRecord,
    GraphKept,
    HistoryEvent,
    Instance,
    Published,
    Receipt,
    SignalRecord,
    Started,
    StartedOne,
    UpdateRecord,
    Waiter,
    read,
)
from .outcome import Scope, Start, StepRef, step_name

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .sync import SyncAbide

log = logging.getLogger("abide")

A = TypeVar("A", bound=Answer)
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
C = TypeVar("C", bound="Abide")

#: An instance: its id, its key, a handle, or an answer that has its id.
Target = int | str | Located[Any] | Started | Instance | Receipt

#: How long one long poll lasts; a longer wait is several of them.
POLL = 20.0

#: After that long it is looked why something that is waited for does not come.
DOUBT = 10.0
#: A client looks so seldom, however much it waits for.
BETWEEN_DOUBTS = 1.0

#: The default address of a server.
LOCAL = "http://127.0.0.1:7070"

_List = list  # the client has a method of that name


class StartOptions(TypedDict, total=False):
    """What ``start`` takes beside what is started and its state."""

    key: str | None
    version: int | None
    step: StepRef | None
    queue: str | None
    priority: int | None
    partition_key: str | None
    unique_key: str | None
    scope: Scope | None
    unique_scope: Scope | None
    due_at: datetime | None
    delay: Duration | None
    retry: Retry | None
    step_timeout: Duration | None
    max_deaths: int | None
    or_existing: bool


class Abide:
    """A client of one server, or of several that share a database: when one is away the next is asked.

    Without a url it is the server that ``ABIDE_STORE`` names, as for the command line, else ``http://127.0.0.1:7070``;
    without a token ``ABIDE_TOKEN``, else what is in the file that ``ABIDE_TOKEN_FILE`` names.

    ``timeout`` is how long one request may take, beside what the server itself is asked to wait. ``patience`` is how
    long a request is sent again that got no clear answer. Each write has an idempotency key of its own, so that the
    server carries it out once however often it is sent; what is still without an answer then is ``Unavailable`` with
    ``unknown``.

    ::

        async with Abide("http://127.0.0.1:7070") as abide:
            order = await abide.start(Checkout, Order("kettle"), key="order:42")
            print(await abide.result(order))
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
        self._transport = connected(url, token, timeout=timeout, patience=patience, verify=verify)
        self._sync: SyncAbide | None = None
        self._doubt_from = 0.0

    @classmethod
    def _over(cls: type[C], transport: Transport) -> C:
        """One that sends by that transport."""
        made = cls.__new__(cls)
        made._transport, made._sync, made._doubt_from = transport, None, 0.0
        return made

    async def __aenter__(self: C) -> C:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        await self._transport.close()
        if self._sync is not None:
            await self._sync._abide.close()

    @property
    def sync(self) -> SyncAbide:
        """A client of the same servers for code that is not async, such as a step that runs in a thread.

        It is closed with this one.
        """
        if self._sync is None:
            from .sync import SyncAbide

            self._sync = SyncAbide._over(self._transport.another(blocking=True))
        return self._sync

    @property
    def urls(self) -> Sequence[str]:
        """The servers."""
        return tuple(self._transport.urls)

    def handle(self, target: Target) -> Handle[Any]:
        """A handle of an instance: by its key it is the newest run of that key, whichever that is when it is used."""
        return Handle(self, _shown(target) if isinstance(target, str) else int(_shown(target)))

    # Starting

    @overload
    async def start(self, what: type[Machine[S]], state: S, **options: Unpack[StartOptions]) -> Handle[Any]: ...
    @overload
    async def start(self, what: type[Machine[None]], **options: Unpack[StartOptions]) -> Handle[Any]: ...
    @overload
    async def start(
        self, what: Function[Concatenate[T, P], Coroutine[Any, Any, R]], state: T, **options: Unpack[StartOptions]
    ) -> Handle[R]: ...
    @overload
    async def start(self, what: Function[[], Coroutine[Any, Any, R]], **options: Unpack[StartOptions]) -> Handle[R]: ...
    @overload
    async def start(
        self, what: Function[Concatenate[T, P], R], state: T, **options: Unpack[StartOptions]
    ) -> Handle[R]: ...
    @overload
    async def start(self, what: Function[[], R], **options: Unpack[StartOptions]) -> Handle[R]: ...
    @overload
    async def start(self, what: str | Graph, state: Any = None, **options: Unpack[StartOptions]) -> Handle[Any]: ...
    async def start(
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
    ) -> Handle[Any]:
        """Starts an instance of a machine, a job or a graph (whose input is the state).

        ``retry``, ``step_timeout`` and ``max_deaths`` take the place of what its machine declares: when a step that
        failed is tried again, as the same instance, how long one attempt may take, from its claim on, and how often a
        worker may die in one step before the instance fails.

        A state that does not match the machine, or an input that does not match its job, is ``NotJson``. A key that is
        taken is a ``Duplicate``; with ``or_existing`` its holder is answered, with ``is_new`` false.
        """
        one = Start(
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
        )
        try:
            _, body = await self._transport.call("POST", "/v1/instances", body=one.wire())
            started = read(Started, body)
        except Duplicate as error:
            if not or_existing:
                raise
            started = Started(error.holder, key, is_new=False)
        return Handle(self, started, what.output if isinstance(what, Function) else Any)

    async def reserve(self, what: Any, key: str) -> Handle[Any]:
        """Makes an instance with no run yet; a later start with that key opens it, with the same id."""
        _, body = await self._transport.call("POST", "/v1/instances", body=Start(what, key=key, reserve=True).wire())
        return Handle(self, read(Started, body))

    async def start_all(self, starts: Iterable[Start]) -> _List[StartedOne]:
        """Starts many in one transaction; what became of each, in order."""
        many = list(starts)
        body = {"instances": [one.wire() for one in many]}
        # A batch may be large: give it the time that it takes to be sent and stored.
        _, answer = await self._transport.call("POST", "/v1/instances/batch", body=body, wait=len(many) / 500)
        return [read(StartedOne, one) for one in answer["results"]]

    # Looking

    async def get(self, target: Target) -> Instance:
        """The instance: where it stands, what it waits for, whether that is healthy."""
        return read(Instance, await self._get(_path(target)))

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
    ) -> AsyncIterator[Instance]:
        """The instances of which all that holds, page after page."""
        params = {
            "status": status,
            "machine": machine,
            "queue": queue,
            "key_prefix": key_prefix,
            "wait_kind": wait_kind,
            "waiting_for": waiting_for,
            "liveness": liveness,
            "parent": parent,
            "limit": page,
        }
        return self._pages(Instance, "/v1/instances", params)

    def history(self, target: Target) -> AsyncIterator[HistoryEvent]:
        """What happened to it, in order."""
        return self._pages(HistoryEvent, _path(target, "history"))

    def signals(
        self,
        target: Target | None = None,
        *,
        status: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> AsyncIterator[SignalRecord]:
        """The records of its signals, refused ones too; without a target those of all instances, newest first."""
        if target is not None:
            return self._pages(SignalRecord, _path(target, "signals"))
        return self._pages(SignalRecord, "/v1/signals", {"status": status, "name": name, "key": key})

    def updates(self, target: Target) -> AsyncIterator[UpdateRecord]:
        """The records of its updates."""
        return self._pages(UpdateRecord, _path(target, "updates"))

    def children(self, target: Target) -> AsyncIterator[Instance]:
        """Its children."""
        return self._pages(Instance, _path(target, "children"))

    def runs(self, target: Target) -> AsyncIterator[Instance]:
        """The runs of its chain."""
        return self._pages(Instance, _path(target, "runs"))

    def waits(
        self,
        *,
        kind: str | None = None,
        name: str | None = None,
        instance: int | str | None = None,
        key_prefix: str | None = None,
    ) -> AsyncIterator[Waiter]:
        """Who waits for what."""
        params = {"kind": kind, "name": name, "instance": instance, "key_prefix": key_prefix}
        return self._pages(Waiter, "/v1/waits", params)

    def events(self, *, type: str | None = None) -> AsyncIterator[EventRecord]:
        """The events that are kept."""
        return self._pages(EventRecord, "/v1/events", {"type": type})

    async def workers(self) -> Any:
        """The workers, and what they hold."""
        return await self._get("/v1/workers")

    async def queues(self) -> Any:
        """The queues, and what waits in them."""
        return await self._get("/v1/queues")

    async def stats(self) -> Any:
        """Figures of the whole store."""
        return await self._get("/v1/stats")

    # Results

    async def ended(self, target: Target, *, wait: Duration | None = 0) -> End:
        """How it ended, or, with ``over`` false, that it had not when that time was up. None: waits for ever."""
        until, doubts = _until(wait), _Doubts()
        while True:
            status, body = await self._poll(_path(target, "result"), min(until, doubts.at))
            over = status == 200
            if over or time.monotonic() >= until:
                return read(End, {"id": _id(target), **body, "over": over})
            await doubts.warn(self, target)

    @overload
    async def result(self, target: Located[R], *, wait: Duration | None = None) -> R: ...
    @overload
    async def result(self, target: Target, *, wait: Duration | None = None) -> Any: ...
    @overload
    async def result(self, target: Target, kind: type[T], *, wait: Duration | None = None) -> T: ...
    async def result(self, target: Target, kind: Any = UNSET, *, wait: Duration | None = None) -> Any:
        """Its result, read as that type; waits for it, so long at most.

        The handle of a job knows the type of its result. ``NotDone`` when it ended otherwise, ``NotYet`` when the time
        was up.
        """
        end = await self.ended(target, wait=wait)
        if not end.over:
            raise NotYet(f"instance {_shown(target)} is still {end.status}")
        if end.status != "done":
            raise NotDone(end.id, end.status, end.last_error)
        if kind is UNSET:
            kind = target.kind if isinstance(target, Located) else Any
        return from_json(kind, end.result, ".result")

    # Sending

    async def signal(
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
        body = _message(name, payload, arguments, dedup)
        if hold_for is not None:
            body["hold_for_ms"] = milliseconds(hold_for)
        path = _path(target, "signals", _called(name))
        _, answer = await self._transport.call("POST", path, body=body)
        return read(Receipt, answer)

    async def signal_with_start(
        self,
        start: Start,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
    ) -> Receipt:
        """Sends a signal to the instance of that key, or starts one that has it already, in one commit."""
        body = {"start": start.wire(), "name": _called(name), **_message(name, payload, arguments, dedup)}
        status, answer = await self._transport.call("POST", "/v1/signal-with-start", body=body)
        return read(Receipt, {**answer, "started": status == 201})

    @overload
    async def update(
        self, target: Target, what: Call[R], /, *, request_id: str | None = None, wait: Duration | None = 30
    ) -> R: ...
    @overload
    async def update(
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
    async def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, Reply[R]]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Reply[R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    async def update(self, target: Target, what: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Sends an update and answers what its handler answered; waits for it, 30 seconds at most unless it is said.

        It is named by the method that handles it, ``update(order, Checkout.note, "fragile", times=2)``, then the types
        of arguments and answer are known; with ``Call(Checkout.note, "fragile")`` where it needs ``request_id`` or
        ``wait``; or by its name with a list or a dict of arguments, ``update(order, "note", ["fragile"])``.

        ``UpdateFailed`` when the handler failed, ``Rejected`` when it was refused, ``NotYet`` when the time was up.
        """
        call, options = prepared(what, args, kwargs)
        until, doubts = _until(options.get("wait", 30)), _Doubts()
        poll = min(max(min(until, doubts.at) - time.monotonic(), 0.0), POLL)
        record = await self._update(target, call, options.get("request_id"), "completed", poll)
        while record.update_status == "accepted":
            if time.monotonic() >= until:
                raise NotYet(f"update {record.update_id} is accepted and not answered yet: ask with update_record")
            await doubts.warn(self, target)
            _, body = await self._poll(f"/v1/updates/{record.update_id}", min(until, doubts.at))
            record = read(UpdateRecord, body)
        if record.update_status == "completed":
            return from_json(call.kind, record.result, ".result")
        raise UpdateFailed(record.error or record.update_status, record.update_id)

    @overload
    async def send_update(
        self, target: Target, what: Call[Any], /, *, request_id: str | None = None
    ) -> UpdateRecord: ...
    @overload
    async def send_update(
        self,
        target: Target,
        what: str,
        /,
        arguments: Sequence[Any] | Mapping[str, Any] = (),
        *,
        request_id: str | None = None,
    ) -> UpdateRecord: ...
    @overload
    async def send_update(
        self,
        target: Target,
        what: Callable[Concatenate[Any, Any, P], Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> UpdateRecord: ...
    async def send_update(self, target: Target, what: Any, /, *args: Any, **kwargs: Any) -> UpdateRecord:
        """Sends an update and does not wait for its answer: ``update_record`` asks for it."""
        call, options = prepared(what, args, kwargs)
        if "wait" in options:
            raise TypeError("send_update does not wait: use update")
        return await self._update(target, call, options.get("request_id"), "accepted", 0.0)

    async def _update(
        self, target: Target, call: Call[Any], request_id: str | None, wait_for: str, wait: float
    ) -> UpdateRecord:
        body: dict[str, Any] = {"arguments": call.arguments, "wait_for": wait_for}
        if wait_for == "completed":
            body["wait_ms"] = milliseconds(wait)
        if request_id is not None:
            body["request_id"] = request_id
        path = _path(target, "updates", call.name)
        try:
            _, answer = await self._transport.call("POST", path, body=body, wait=wait)
        except Invalid as error:
            if error.problem.get("update_status") == "failed":
                said = str(error.problem.get("error") or error)
                raise UpdateFailed(said, error.problem.get("update_id"), problem=error.problem) from None
            raise
        return read(UpdateRecord, answer)

    async def update_record(self, update_id: int, *, wait: Duration = 0) -> UpdateRecord:
        """The record of an update; waits for its answer, so long at most."""
        until = _until(wait)
        while True:
            _, body = await self._poll(f"/v1/updates/{update_id}", until)
            record = read(UpdateRecord, body)
            if record.update_status != "accepted" or time.monotonic() >= until:
                return record

    async def publish(self, type: str, payload: Any = None, *, event_id: str | None = None) -> Published:
        """Publishes an event. With ``event_id`` it is one event however often it is tried."""
        body = _event(type, payload, event_id)
        _, answer = await self._transport.call("POST", "/v1/events", body=body)
        return read(Published, answer)

    async def publish_all(self, events: Iterable[tuple[str, Any] | tuple[str, Any, str]]) -> _List[Published]:
        """Publishes many in one transaction: ``(type, payload)`` or ``(type, payload, event_id)`` each."""
        many = [_event(*each) for each in events]
        _, answer = await self._transport.call("POST", "/v1/events/batch", body={"events": many})
        return [read(Published, one) for one in answer["results"]]

    # Operating

    async def cancel(self, target: Target, reason: str = "", *, cascade: bool = True, force: bool = False) -> None:
        """Ends it as cancelled, with its children unless they are to be left.

        A workflow is notified first, and ends when it has cleaned up; ``force`` ends it at once.
        """
        body: dict[str, Any] = {"reason": reason, "children": "cascade" if cascade else "leave"}
        if force:
            body["force"] = True
        await self._transport.call("POST", _path(target, "cancel"), body=body)

    async def restart(self, target: Target, *, step: StepRef | None = None) -> Handle[Any]:
        """Opens a new run of what failed or was cancelled, with its last state, where it ended or at that step."""
        body = {} if step is None else {"step": step_name(step)}
        _, answer = await self._transport.call("POST", _path(target, "restart"), body=body)
        return Handle(self, read(Started, answer))

    async def repair(self, target: Target) -> bool:
        """Puts right what is broken about it; whether there was anything."""
        _, answer = await self._transport.call("POST", _path(target, "repair"), body={})
        return bool(answer["outcome"] == "repair_dispatched")

    async def put_machine(self, name: str, version: int, declaration: Mapping[str, Any]) -> None:
        """Declares a machine whose code runs elsewhere. A worker does this by itself."""
        await self._transport.call("PUT", f"/v1/machines/{quoted(name)}/{version}", body=declaration, safe=True)

    async def put_graph(
        self, graph: Graph | str, steps: Iterable[Mapping[str, Any]] | Mapping[str, Any] | None = None
    ) -> GraphKept:
        """Keeps a graph: one that was built, or a name and its steps. What is wrong with it is ``Invalid.problems``."""
        name = graph.name if isinstance(graph, Graph) else graph
        given = graph if isinstance(graph, Graph) else (steps or [])
        path = f"/v1/graphs/{quoted(name)}"
        _, body = await self._transport.call("PUT", path, body={"steps": steps_of(given)}, safe=True)
        return read(GraphKept, body)

    # Following

    async def stream(
        self, *, instance: int | str | None = None, types: Sequence[str] = (), last: str | None = None
    ) -> AsyncIterator[Change]:
        """What changes, as it does, until it is left. A broken line is taken up again where it was.

        Of one instance: its history from the beginning, then what happens to it, and ``end`` when it has ended. Of
        the whole server: ``ready``, ``ended``, ``answered``, ``cancelled``, ``received``, ``due``; and ``reset`` when
        something was missed.
        """
        params = {"instance": instance, "types": ",".join(types) or None}
        backoff = Backoff()
        while True:
            try:
                async with self._transport.listen("/v1/stream", params, last) as lines:
                    async for id, kind, data in server_sent(lines):
                        last = id if id is not None else last
                        backoff.reset()
                        yield Change(last or "", kind, data)
                        if kind == "end" and instance is not None:
                            return
            except Unavailable:
                pass
            await self._transport.wire.pause(backoff.pause())

    # How

    async def _get(self, path: str) -> Any:
        _, body = await self._transport.call("GET", path, safe=True)
        return body

    async def _poll(self, path: str, until: float) -> tuple[int, Any]:
        """Asks for something that is waited for, for as long as one long poll lasts at most."""
        left = until - time.monotonic()
        if left <= 0:
            return await self._transport.call("GET", path, safe=True)
        polls = self._transport.wire.polls
        crowded = polls.locked()
        async with polls:
            # When more wait than there are places, they take turns.
            wait = min(max(until - time.monotonic(), 0.0), 1.0 if crowded or polls.locked() else POLL)
            return await self._transport.call("GET", path, params={"wait_ms": milliseconds(wait)}, safe=True, wait=wait)

    async def _pages(self, kind: type[A], path: str, params: Mapping[str, Any] | None = None) -> AsyncIterator[A]:
        cursor: Any = None
        while True:
            _, body = await self._transport.call("GET", path, params={**(params or {}), "cursor": cursor}, safe=True)
            for one in body["items"]:
                yield read(kind, one)
            cursor = body.get("next_cursor")
            if cursor is None:
                return


def connected(
    url: str | Sequence[str] | None,
    token: str | None,
    *,
    timeout: float,
    patience: float,
    verify: Any,
    blocking: bool = False,
) -> Transport:
    """The transport of a client; where it is not said, to the server and with the token of the environment."""
    url = url if url is not None else _default_url()
    token = token if token is not None else _default_token()
    verify = _trusted() if verify is True else verify
    return Transport(url, token=token, timeout=timeout, patience=patience, verify=verify, blocking=blocking)


def _default_token() -> str | None:
    """The token of ABIDE_TOKEN, else that of the file that ABIDE_TOKEN_FILE names."""
    token = os.environ.get("ABIDE_TOKEN")
    file = os.environ.get("ABIDE_TOKEN_FILE")
    if token or not file:
        return token
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"ABIDE_TOKEN_FILE is {file!r}, which cannot be read ({error}): name another file") from error
    if not token:
        raise ValueError(f"ABIDE_TOKEN_FILE is {file!r}, which is empty: write a token into it")
    return token


def _trusted() -> Any:
    """Whose certificates are trusted: those of the file that ABIDE_TLS_CA names, else the system's."""
    file = os.environ.get("ABIDE_TLS_CA")
    if not file:
        return True
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ValueError(f"ABIDE_TLS_CA is {file!r}, which cannot be used ({error}): name a PEM file") from error


def _default_url() -> str:
    store = os.environ.get("ABIDE_STORE", "")
    return store if store.startswith(("http://", "https://")) else LOCAL


def _path(target: Target, *rest: str) -> str:
    return "/".join(["/v1/instances", quoted(_shown(target)), *map(quoted, rest)])


def _shown(target: Target) -> str:
    if isinstance(target, Receipt):
        return str(target.instance_id)
    if isinstance(target, Located):
        return str(target.target)
    if isinstance(target, (Started, Instance)):
        return str(target.id)
    if isinstance(target, str) and not target:
        raise ValueError("an empty text is not a key")
    return str(target)


def _id(target: Target) -> int:
    shown = _shown(target)
    return int(shown) if shown.isascii() and shown.isdigit() else 0


def _called(name: str | Signal[Any]) -> str:
    return name if isinstance(name, str) else name.name


def _message(name: str | Signal[Any], payload: Any, arguments: Any, dedup: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {} if dedup is None else {"dedup_key": dedup}
    if arguments is not None:
        if payload is not UNSET:
            raise TypeError("give a payload or arguments, not both")
        body["arguments"] = to_json(arguments)
    elif payload is not UNSET and isinstance(name, Signal) and name.parameters is not None:
        body["arguments"] = name.arguments(payload)
    elif payload is not UNSET:
        body["payload"] = to_json(payload)
    return body


def _event(type: str, payload: Any = None, event_id: str | None = None) -> dict[str, Any]:
    body = {"type": type, "payload": to_json(payload)}
    if event_id is not None:
        body["event_id"] = event_id
    return body


def _until(wait: Duration | None) -> float:
    return float("inf") if wait is None else time.monotonic() + milliseconds(wait) / 1000


class _Doubts:
    """Warns once if an instance that a caller waits for has no worker."""

    def __init__(self) -> None:
        #: When to ask.
        self.at = time.monotonic() + DOUBT

    async def warn(self, abide: Abide, target: Target) -> None:
        """Warns if it is time and no worker runs the instance."""
        now = time.monotonic()
        if now < self.at:
            return
        if now < abide._doubt_from:  # many may wait: not all of them ask at once
            self.at = now + DOUBT
            return
        self.at, abide._doubt_from = float("inf"), now + BETWEEN_DOUBTS
        try:
            seen = await abide.get(target)
        except AbideError:
            return  # the caller that waits gets the error itself
        if seen.liveness == "waiting_for_worker":
            log.warning(
                "instance %s waits for a worker: no live worker serves queue %s with %s version %s; is `worker.run()` "
                "running?",
                seen.id,
                seen.queue,
                seen.machine,
                seen.version,
            )
