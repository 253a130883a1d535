"""How bytes get to a server: on an event loop, or in the thread that calls."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar

import httpx2 as httpx

T = TypeVar("T")

#: How many connections there may be, and how many of them may wait for something to happen.
CONNECTIONS: Final = 256
LONG_POLLS: Final = 192


class Gate(AbstractAsyncContextManager[None], Protocol):
    """Lets so many through at a time."""

    def locked(self) -> bool:
        """Whether the next one has to wait."""


class Wire(Protocol):
    """Sends single requests. ``polls`` bounds those that wait for something to happen."""

    polls: Gate

    async def exchange(self, method: str, url: str, **how: Any) -> httpx.Response:
        """One request and its whole response."""

    def lines(self, url: str, **how: Any) -> AbstractAsyncContextManager[tuple[httpx.Response, AsyncIterator[str]]]:
        """A response that is read line by line; one of an error is read as a whole."""

    async def pause(self, seconds: float) -> None:
        """Waits."""

    async def close(self) -> None:
        """Closes the connections."""


def _settings(headers: Mapping[str, str], verify: Any) -> dict[str, Any]:
    return {
        "headers": headers,
        "verify": verify,
        "follow_redirects": False,
        # A server, or a proxy, closes what is idle; what it may be about to close is not used again.
        "limits": httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=64, keepalive_expiry=5.0),
    }


class LoopWire:
    """On the event loop that runs."""

    def __init__(self, headers: Mapping[str, str], verify: Any) -> None:
        self._http = httpx.AsyncClient(**_settings(headers, verify))
        self.polls: Gate = asyncio.Semaphore(LONG_POLLS)

    async def exchange(self, method: str, url: str, **how: Any) -> httpx.Response:
        with _quiet():
            return await self._http.request(method, url, **how)

    @asynccontextmanager
    async def lines(self, url: str, **how: Any) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        async with AsyncExitStack() as stack:
            with _quiet():
                response = await stack.enter_async_context(self._http.stream("GET", url, **how))
            if response.status_code >= 400:
                await response.aread()
            yield response, response.aiter_lines()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


class ThreadWire:
    """In the thread that calls, without an event loop: its coroutines never wait, so that ``completed`` can run them.

    Threads may share it. A process that was forked gets connections of its own.
    """

    def __init__(self, headers: Mapping[str, str], verify: Any) -> None:
        self._settings = _settings(headers, verify)
        self._open: tuple[int, httpx.Client] = (os.getpid(), httpx.Client(**self._settings))
        self.polls: Gate = _ThreadGate(LONG_POLLS)

    def _http(self) -> httpx.Client:
        process, client = self._open
        if process != os.getpid():  # the parent goes on using those of `client`
            client = httpx.Client(**self._settings)
            self._open = (os.getpid(), client)
            self.polls = _ThreadGate(LONG_POLLS)
        return client

    async def exchange(self, method: str, url: str, **how: Any) -> httpx.Response:
        with _quiet():
            return self._http().request(method, url, **how)

    @asynccontextmanager
    async def lines(self, url: str, **how: Any) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
        with ExitStack() as stack:
            with _quiet():
                response = stack.enter_context(self._http().stream("GET", url, **how))
            if response.status_code >= 400:
                response.read()
            yield response, _each(response.iter_lines())

    async def pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that it could hold up

    async def close(self) -> None:
        self._http().close()


async def _each(items: Iterator[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


class _ThreadGate:
    """A semaphore of threads that is entered as one of a loop is."""

    def __init__(self, places: int) -> None:
        self._free = threading.Semaphore(places)

    def locked(self) -> bool:
        if not self._free.acquire(blocking=False):
            return True
        self._free.release()
        return False

    async def __aenter__(self) -> None:
        self._free.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._free.release()


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine answers that does all its work on a ``ThreadWire``, and so ends without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        answer: T = ended.value
        return answer
    coroutine.close()
    raise RuntimeError("a blocking call needs an event loop; this is a mistake of the abide SDK, please report it")


_END: Final[Any] = object()


def iterated(items: AsyncIterator[T]) -> Iterator[T]:
    """The items of an iterator that does all its work on a ``ThreadWire``."""
    try:
        while (item := completed(_next(items))) is not _END:
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            completed(close())


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items, _END)


# httpx logs every request at INFO. A worker polls without end, so its requests would bury the log of the application;
# those of the application's own clients stay.

_ours: contextvars.ContextVar[bool] = contextvars.ContextVar("abide_request", default=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the log of httpx quiet about what is sent inside."""
    before = _ours.set(True)
    try:
        yield
    finally:
        _ours.reset(before)


def _wanted(record: logging.LogRecord) -> bool:
    return record.levelno > logging.INFO or not _ours.get()


logging.getLogger(httpx.__name__).addFilter(_wanted)
