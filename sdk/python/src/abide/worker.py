"""The worker: claims what is ready, runs it, commits what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from ._build import build_of
from ._calling import threads_end
from ._code import Code, FunctionCode, MachineCode, context_of
from ._codec import Duration, NotJson, dumps, milliseconds
from ._commits import Commits
from ._leases import Leases
from ._salvage import UNREADABLE, salvaged
from ._transport import Backoff, NoJson, quoted, retry_after
from ._trouble import Trouble
from ._watchdog import Watchdog
from .client import Abide
from .errors import AbideError, Broken, Refused, Unavailable
from .function import Function
from .machine import Context, Machine, declared_of
from .outcome import block, shown, stop, unmarked

log = logging.getLogger("abide")

T = TypeVar("T")
W = TypeVar("W", bound="Worker")

#: How many steps of a queue run at a time, unless it is said.
SLOTS = 16

#: After that long it is said that a worker was made and does not run.
FORGOTTEN = 10.0


class Worker:
    """Runs machines, tasks and jobs.

    ``queues`` says how many steps of each queue may run at a time; by default the queues that the machines name, 16
    each. ``name`` is for a worker that comes back under the same name: what an earlier process of that name held when
    it died is taken back at once when it starts. Two that live at the same time must not share one. Without a name it
    gets one of its own.

    ``lease`` is how long the server waits for a sign of life before it gives a step to another worker; ``grace`` how
    long running steps have to end when the worker stops.

    ::

        asyncio.run(Worker("http://127.0.0.1:7070", machines=[Checkout]).run())
    """

    def __init__(
        self,
        server: str | Sequence[str] | Abide | None = None,
        *,
        machines: Iterable[type[Machine[Any]] | Machine[Any]] = (),
        tasks: Iterable[Function[..., Any]] = (),
        queues: Mapping[str, int] | None = None,
        name: str | None = None,
        build: str | None = None,
        token: str | None = None,
        lease: Duration = 30,
        grace: Duration = 10,
        poll: Duration = 20,
    ) -> None:
        self.abide: Abide = server if isinstance(server, Abide) else Abide(server, token)
        self._owned = not isinstance(server, Abide)
        self._named = name is not None
        self.name = name or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._place = f"/v1/workers/{quoted(self.name)}"
        self._lease, self._grace, self._poll = (milliseconds(each) / 1000 for each in (lease, grace, poll))
        if not 1 <= self._lease <= 86_400:
            raise ValueError(f"a lease lasts a second at least and a day at most, not {self._lease:g} s")
        if not 1 <= self._poll <= 60:
            raise ValueError(f"a poll lasts a second at least and a minute at most, not {self._poll:g} s")
        made = [_machine(each) for each in _listed("machines", machines)]
        functions = [_function(each) for each in _listed("tasks", tasks)]
        self._queues = dict(queues) if queues is not None else _queues(made, functions)
        if not self._queues or not all(isinstance(slots, int) and slots > 0 for slots in self._queues.values()):
            raise ValueError(f"a worker has a queue, and a queue a slot, at least: not {self._queues}")
        self._codes = _codes(made, functions)
        self.build = build or build_of([*map(type, made), *(each.code for each in functions)])
        if not self._codes:
            raise ValueError("a worker needs something to run: give machines or tasks")
        self._transport = self.abide._transport.another()  # whatever the client waits for, a worker can speak
        self._commits = Commits(self._transport, self.name)
        self._held: dict[str, _Held] = {}
        self._free = {queue: _Slots(slots) for queue, slots in self._queues.items()}
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._claiming: list[asyncio.Task[None]] = []
        self._tending: list[asyncio.Task[None]] = []
        self._leases: Leases | None = None
        self._watchdog: Watchdog | None = None
        self._life = _Life(self.name)
        weakref.finalize(self, self._life.is_over)
        with contextlib.suppress(RuntimeError):  # no loop runs yet
            asyncio.get_running_loop().call_later(FORGOTTEN, _Life.is_late, weakref.ref(self._life))

    # Its life

    async def start(self) -> None:
        """Declares what it runs and begins to claim. A server that is away is waited for."""
        self._life.begun = True
        for code in self._codes.values():
            if code.queue is not None and code.queue not in self._queues:
                log.warning("%s is started in the queue %s, which this worker does not serve", code.name, code.queue)
            path = f"/v1/machines/{quoted(code.name)}/{code.version}"
            await self._insist("PUT", path, body=code.declaration())
        if self._named:
            await self._insist("POST", f"{self._place}/reclaim")
        self._leases = Leases(self._transport, self.name, self._lease, self._claims_held, self._claims_lost)
        self._watchdog = Watchdog(self.name)
        self._tending = [asyncio.create_task(self._commits.run())]
        self._claiming = [asyncio.create_task(self._claims(queue)) for queue in self._queues]
        for task in [*self._tending, *self._claiming]:
            task.add_done_callback(self._ended_early)
        log.info("worker %s runs %s", self.name, ", ".join(f"{name} {version}" for name, version in self._codes))

    def _ended_early(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.error("worker %s stands still: %s", self.name, task.exception())

    async def stop(self) -> None:
        """Claims no more, lets what runs end within the grace time, gives the rest back."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for task in self._claiming:
            task.cancel()
        await _ended(self._claiming)
        await self._let_end()
        late = {held.task: held for held in self._held.values() if held.task is not None and not held.task.done()}
        for held in late.values():
            held.leave()
        await _ended(late)
        if late:
            await threads_end(within=1.0)
        for task in self._tending:
            task.cancel()
        await _ended(self._tending)
        if self._leases is not None:
            await asyncio.to_thread(self._leases.stop, 1.0)
        try:
            await self._call("DELETE", self._place, patience=1.0)
        except AbideError as error:
            log.warning("worker %s could not sign off, what it held comes free with its lease: %s", self.name, error)
        await self._close()

    async def _let_end(self) -> None:
        """Waits for what runs, until the grace time is over or a second signal arrives."""
        running = [held.task for held in self._held.values() if held.task is not None]
        if running:
            ending = asyncio.ensure_future(asyncio.wait(running, timeout=self._grace))
            hurry = asyncio.ensure_future(self._hurried.wait())
            await asyncio.wait([ending, hurry], return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            hurry.cancel()

    async def _close(self) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        await self._transport.close()
        if self._owned:
            await self.abide.close()

    async def __aenter__(self: W) -> W:
        try:
            await self.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then stops gracefully; a second signal ends the grace time."""
        asked = asyncio.Event()

        def stop_signal() -> None:
            (self._hurried if asked.is_set() else asked).set()

        with _signals(stop_signal):
            await self.run_until(asked.wait())

    async def run_until(self, awaitable: Awaitable[T]) -> T:
        """Runs until that has ended, and answers what it answers."""
        ending = asyncio.ensure_future(awaitable)
        starting = asyncio.ensure_future(self.start())  # which may wait for a server for ever
        try:
            await asyncio.wait([ending, starting], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait([ending, *self._claiming, *self._tending], return_when=asyncio.FIRST_COMPLETED)
            for task in [*self._claiming, *self._tending]:
                if task.done() and not ending.done():
                    task.result()  # it ends only by an error that nothing can be done about
            return await ending
        finally:
            ending.cancel()
            starting.cancel()
            await _ended([starting])
            await (self.stop() if self._claiming else self._close())

    # Claiming

    async def _claims(self, queue: str) -> None:
        slots, backoff = self._free[queue], Backoff()
        trouble = Trouble(f"worker {self.name} cannot claim from {queue}")
        body: dict[str, Any] = {
            "worker": self.name,
            "build": self.build,
            "queue": queue,
            "machines": [{"name": name, "version": version} for name, version in self._codes],
            "wait_ms": milliseconds(self._poll),
            "lease_ms": milliseconds(self._lease),
        }
        while not self._stopping.is_set():
            body["limit"] = await slots.some()
            asked = time.monotonic()
            try:
                answer = await self._call("POST", "/v1/workers/claim", body=body, wait=self._poll, patience=0.0)
                claims = answer["claims"]
                trouble.over()
            except (Unavailable, Broken) as error:
                claims = salvaged(error.content) if isinstance(error, NoJson) else []
                if not claims:
                    trouble.met(error)
                    await asyncio.sleep(max(backoff.pause(), retry_after(error)))
                    continue
            for claim in claims:
                self._take(queue, claim)
            if not claims and time.monotonic() - asked < self._poll / 2:
                await asyncio.sleep(backoff.pause())  # it did not wait: it is about to stop
            else:
                backoff.reset()

    def _take(self, queue: str, claim: dict[str, Any]) -> None:
        held = _Held(claim, context_of(claim, self.abide))
        known = str(claim["claim"])
        self._held[known] = held
        self._free[queue].take()
        held.task = asyncio.create_task(self._work(held), name=f"{claim['machine']} {claim['instance_id']}")

        def free(task: asyncio.Task[None]) -> None:
            self._held.pop(known, None)
            self._free[queue].give()
            if not task.cancelled() and task.exception() is not None:
                log.error("worker %s: %s", self.name, task.exception(), exc_info=task.exception())

        held.task.add_done_callback(free)

    async def _work(self, held: _Held) -> None:
        """Runs a claim and commits its outcome."""
        code = self._codes[held.claim["machine"], held.claim["version"]]
        try:
            unreadable = held.claim.get(UNREADABLE)
            if unreadable is None:
                outcome = await code.run(held.context, held.claim)
            else:
                log.warning("%s: %s", held, unreadable)
                outcome = block(unreadable).wire(None)
            error = await self._commit(held, outcome)
            if error is not None:
                outcome = await code.refused(held.context, held.claim, Refused(error))
                error = await self._commit(held, outcome)
            if error is not None:
                await self._commit(held, stop(f"its outcome was refused: {error}").wire(None))
        except asyncio.CancelledError:
            if not held.context.lost:
                raise
            why = "it did not end in time, and is given back" if self._stopping.is_set() else "its claim was lost"
            log.warning("%s: %s", held, why)

    async def _commit(self, held: _Held, outcome: dict[str, Any]) -> str | None:
        """Why the outcome was refused, if it was."""
        try:
            content = dumps(outcome)
        except NotJson as error:
            log.warning("%s: the outcome cannot be sent: %s", held, error)
            return str(error)
        held.commits = True
        status, error_text = await self._commits.commit(held.claim["claim"], content)
        held.commits = False
        if status == "stale":
            log.warning("%s: another worker has taken it over; its outcome is dropped", held)
        if status == "refused":
            log.warning("%s: the outcome was refused: %s", held, error_text)
            return error_text or "the server did not say why"
        return None

    # Leases

    def _claims_held(self) -> Sequence[Any]:
        """What the leases are renewed of; called from their thread."""
        return [held.claim["claim"] for held in tuple(self._held.values())]

    def _claims_lost(self, claims: Sequence[Any]) -> None:
        for claim in claims:
            held = self._held.get(str(claim))
            # One that is being committed is answered for by the commit.
            if held is not None and held.task is not None and not held.commits:
                held.leave()

    async def _insist(self, method: str, path: str, **how: Any) -> None:
        """A request that is made when there is a server, however long that takes."""
        trouble = Trouble(f"worker {self.name} waits for a server")
        while True:
            try:
                await self._call(method, path, patience=5.0, **how)
                trouble.over()
                return
            except Unavailable as error:
                trouble.met(error)
                await asyncio.sleep(1)

    async def _call(self, method: str, path: str, **how: Any) -> Any:
        _, body = await self._transport.call(method, path, safe=True, **how)
        return body


class _Life:
    """Whether a worker was run: one that was not runs nothing, and all that it was made for waits."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.begun = False

    def is_over(self) -> None:
        """The worker is gone."""
        self._say("was made and never run")

    @staticmethod
    def is_late(of: weakref.ref[_Life]) -> None:
        """The worker had time to begin."""
        life = of()
        if life is not None:
            life._say(f"was made {FORGOTTEN:g} s ago and does not run")

    def _say(self, what: str) -> None:
        if not self.begun:
            self.begun = True  # once is enough
            log.warning(
                "worker %s %s, so nothing that it serves is run: call `await worker.run()`, or `async with worker:`",
                self._name,
                what,
            )


class _Held:
    """A claim that is being worked on."""

    def __init__(self, claim: dict[str, Any], context: Context[Any]) -> None:
        self.claim = claim
        self.context = context
        self.task: asyncio.Task[None] | None = None
        self.commits = False

    def leave(self) -> None:
        """Stops it: its outcome is no longer needed."""
        self.context.lost = True
        if self.task is not None:
            self.task.cancel()

    def __str__(self) -> str:
        return f"{self.claim['machine']} {self.claim['instance_id']}, step {self.claim['step']}"


class _Slots:
    """How many steps more may run."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._any = asyncio.Event()
        self._any.set()

    async def some(self) -> int:
        """How many are free, when there are any."""
        await self._any.wait()
        await asyncio.sleep(0)  # those that end together free theirs together
        return self._free

    def take(self) -> None:
        self._free -= 1
        if self._free <= 0:
            self._any.clear()

    def give(self) -> None:
        self._free += 1
        if self._free > 0:
            self._any.set()


def _listed(what: str, given: Any) -> list[Any]:
    if isinstance(given, (str, Machine, Function)) or callable(given):
        raise TypeError(f"{what} is a list: write {what}=[{shown(given)}]")
    return list(given)


def _machine(given: Any) -> Machine[Any]:
    if isinstance(given, Machine):
        return given
    if isinstance(given, type) and issubclass(given, Machine):
        return given()
    if isinstance(given, Function):
        raise TypeError(f"{given.__name__} is a job or a task, not a machine: write tasks=[{given.__name__}]")
    raise TypeError(f"{shown(given)} is not a machine: {unmarked(given)}")


def _function(given: Any) -> Function[..., Any]:
    if isinstance(given, Function):
        return given
    if isinstance(given, Machine) or (isinstance(given, type) and issubclass(given, Machine)):
        raise TypeError(f"{shown(given)} is a machine, not a task: write machines=[{shown(given)}]")
    raise TypeError(f"{shown(given)} is not a job or a task: {unmarked(given)}")


def _queues(machines: Sequence[Machine[Any]], functions: Sequence[Function[..., Any]]) -> dict[str, int]:
    """The queues that they name."""
    named = [declared_of(type(machine)).queue for machine in machines] + [each.queue for each in functions]
    return dict.fromkeys(sorted({queue or "default" for queue in named} or {"default"}), SLOTS)


def _codes(machines: Sequence[Machine[Any]], functions: Sequence[Function[..., Any]]) -> dict[tuple[str, int], Code]:
    codes: list[Code] = [MachineCode(machine) for machine in machines]
    codes += [FunctionCode(function) for function in functions]
    known: dict[tuple[str, int], Code] = {}
    for code in codes:
        if known.setdefault((code.name, code.version), code) is not code:
            raise ValueError(f"{code.name} version {code.version} is there twice")
    return known


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Waits until they have ended, however."""
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def _signals(handler: Callable[[], None]) -> Iterator[None]:
    """Calls ``handler`` at SIGTERM and SIGINT, if this thread can handle signals."""
    loop = asyncio.get_running_loop()
    kept: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, RuntimeError):  # not on this system
                loop.add_signal_handler(number, handler)
                kept.append(number)
    try:
        yield
    finally:
        for number in kept:
            loop.remove_signal_handler(number)
