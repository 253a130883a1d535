"""A test kit: the real server, with all it keeps in memory and a clock that the test moves.

::

    async with Kit(machines=[Checkout]) as kit:
        order = await kit.abide.start(Checkout, Order("kettle"))
        await kit.advance(3600)                      # the payment never came
        assert (await order.get()).last_error == "payment never came"
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from ._codec import Duration, instant, milliseconds
from .client import Abide
from .function import Function
from .machine import Machine
from .sync import SyncAbide
from .worker import Worker

K = TypeVar("K", bound="Kit")
T = TypeVar("T")
Y = TypeVar("Y", bound="SyncKit")

#: How long nothing may change, in real time, while steps run, before they are taken to wait for something outside.
STALL = 1.0
#: How often it is looked whether something has changed.
LOOK = 0.005
#: How long the server may take to start.
START = 30.0


class Kit:
    """A server of its own, a client and a worker that runs these machines and tasks; all of it ends with the kit.

    ``abide`` is the client. ``binary`` is the server's program; by default ``ABIDE_BIN``, else ``abide`` in ``PATH``.

    The clock runs as the computer's does until ``advance`` moves it: timers, deadlines, retries and delays of the
    server follow it. What a step itself waits for (``asyncio.sleep``) takes real time.
    """

    def __init__(
        self,
        *,
        machines: Iterable[type[Machine[Any]] | Machine[Any]] = (),
        tasks: Iterable[Function[..., Any]] = (),
        queues: Mapping[str, int] | None = None,
        binary: str | Path | None = None,
    ) -> None:
        self._serves: dict[str, Any] = {"machines": machines, "tasks": tasks, "queues": queues}
        self._binary = _binary(binary)
        self._open = AsyncExitStack()
        self.abide: Abide
        self.worker: Worker

    async def __aenter__(self: K) -> K:
        async with AsyncExitStack() as opening:
            self.abide = await opening.enter_async_context(Abide(await self._serve(opening)))
            self.worker = await opening.enter_async_context(Worker(self.abide, **self._serves))
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def now(self) -> datetime:
        """The time of the server."""
        return instant(str((await self._clock())["now"]))

    async def settle(self) -> None:
        """Waits until all that can run now has run.

        What waits for its time or for a message stays where it is. Steps that wait for something outside are not waited
        for longer than a second.
        """
        before: Any = None
        changed = time.monotonic()
        idle = 0
        while idle < 2:  # what has just ended may be followed by something
            busy = await self._busy()
            idle = 0 if busy else idle + 1
            if busy != before:
                before, changed = busy, time.monotonic()
            elif busy and time.monotonic() - changed > STALL:
                return
            await asyncio.sleep(LOOK)

    async def advance(self, by: Duration) -> None:
        """Moves the time on, stopping at every moment at which something is due, and settles."""
        left = milliseconds(by)
        await self.settle()
        while left > 0:
            _, answer = await self.abide._transport.call("POST", "/test/clock", body={"by_ms": left})
            left -= answer["moved_ms"]
            await self.settle()

    async def _clock(self) -> Any:
        return await self.abide._get("/test/clock")

    async def _busy(self) -> list[Any]:
        """What runs or could run, and what is due."""
        clock = await self._clock()
        due = clock["next_due"]
        found: list[Any] = [due] if due is not None and instant(due) <= instant(clock["now"]) else []
        for status in ("runnable", "executing"):
            async for one in self.abide.list(status=status):
                if one.liveness != "waiting_for_worker":
                    found.append((one.id, one.status, one.step_sequence, one.attempt))
        return found

    async def _serve(self, opening: AsyncExitStack) -> str:
        """Starts the server; its url."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ABIDE_")}
        command = ["serve", "--test-clock", "--store", "memory:", "--listen", "127.0.0.1:0"]
        process = await asyncio.create_subprocess_exec(
            str(self._binary),
            *command,
            *("--set", "retention=forever", "--set", "log_level=error"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env=clean,
        )
        opening.push_async_callback(_ended, process)
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), START)).decode()
        _, found, rest = line.partition("listening on ")
        if not found:
            raise RuntimeError(f"{self._binary} did not start ({line.strip()!r}): its own words are on standard error")
        return rest.partition(",")[0].strip()


class SyncKit:
    """A ``Kit`` for tests that are not async, such as those of Django and Flask; its client is a ``SyncAbide``.

    ::

        with SyncKit(machines=[Checkout]) as kit:
            order = kit.abide.start(Checkout, Order("kettle"))
            kit.advance(3600)
            assert order.get().last_error == "payment never came"
    """

    def __init__(
        self,
        *,
        machines: Iterable[type[Machine[Any]] | Machine[Any]] = (),
        tasks: Iterable[Function[..., Any]] = (),
        queues: Mapping[str, int] | None = None,
        binary: str | Path | None = None,
    ) -> None:
        self._kit = Kit(machines=machines, tasks=tasks, queues=queues, binary=binary)
        self._loop = asyncio.new_event_loop()
        self.abide: SyncAbide

    def __enter__(self: Y) -> Y:
        self._thread = threading.Thread(target=self._loop.run_forever, name="abide-kit", daemon=True)
        self._thread.start()
        try:
            self._run(self._kit.__aenter__())
        except BaseException:
            self._end()
            raise
        self.abide = SyncAbide(self._kit.abide.urls)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.abide.close()
            self._run(self._kit.__aexit__(None, None, None))
        finally:
            self._end()

    def now(self) -> datetime:
        """The time of the server."""
        return self._run(self._kit.now())

    def settle(self) -> None:
        """Waits until all that can run now has run; see ``Kit.settle``."""
        self._run(self._kit.settle())

    def advance(self, by: Duration) -> None:
        """Moves the time on, stopping at every moment at which something is due, and settles."""
        self._run(self._kit.advance(by))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()


def _binary(given: str | Path | None) -> Path:
    named = given or os.environ.get("ABIDE_BIN") or shutil.which("abide")
    if named is None or not Path(named).exists():
        raise RuntimeError(
            f"the server's program is not there ({named}): install abide, or set ABIDE_BIN, or give binary=…"
        )
    return Path(named)
