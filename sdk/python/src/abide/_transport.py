"""Requests to one server or several: who is asked, what is tried again, what an answer means."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

import httpx2 as httpx

from ._codec import dumps
from ._wire import LoopWire, ThreadWire, Wire
from .errors import AbideError, Broken, Duplicate, Invalid, NoTarget, Rejected, Unauthorized, Unavailable, by_field

#: Stands for what was left out, where None means something.
UNSET: Final[Any] = type("Unset", (), {"__repr__": lambda self: "UNSET", "__bool__": lambda self: False})()


class NoJson(Broken):
    """An answer that cannot be read; ``content`` is what it was."""

    def __init__(self, text: str, *, status: int, content: bytes) -> None:
        super().__init__(text, status=status)
        self.content = content


class Backoff:
    """Pauses that grow, each with a part of chance in it."""

    def __init__(self, first: float = 0.05, most: float = 5.0) -> None:
        self._first, self._most, self._next = first, most, first

    def pause(self) -> float:
        """The next pause, in seconds."""
        pause = self._next
        self._next = min(pause * 2, self._most)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begins again with the shortest."""
        self._next = self._first


class Transport:
    """Sends requests; knows the servers and the token, and sends again what got no answer.

    ``blocking``: in the thread that calls, and without an event loop; its coroutines are run by ``completed``.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str | None,
        timeout: float,
        patience: float,
        verify: Any,
        blocking: bool = False,
    ) -> None:
        self._given: dict[str, Any] = {"token": token, "timeout": timeout, "patience": patience, "verify": verify}
        self._blocking = blocking
        self.urls = _checked([urls] if isinstance(urls, str) else list(urls))
        self.timeout = timeout
        self.patience = patience
        self._at = 0
        headers = {"accept": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        # Reading the system's certificates takes a while, and plain HTTP has no use for them.
        verify = verify if any(url.startswith("https:") for url in self.urls) else False
        self.wire: Wire = ThreadWire(headers, verify) if blocking else LoopWire(headers, verify)

    def another(self, *, blocking: bool | None = None) -> Transport:
        """One like it, with connections of its own."""
        return Transport(self.urls, **self._given, blocking=self._blocking if blocking is None else blocking)

    async def close(self) -> None:
        """Closes the connections."""
        await self.wire.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: object = UNSET,
        content: bytes | None = None,
        params: Mapping[str, Any] | None = None,
        safe: bool = False,
        wait: float = 0.0,
        patience: float | None = None,
    ) -> tuple[int, Any]:
        """One request, tried again until it is answered or the patience is spent; the status, and what the body says.

        ``safe``: it may be carried out twice, as reads may and what workers send. Every other request has an
        idempotency key, the same one each time it is sent, so that the server carries it out once. ``wait``: how long
        the server itself will wait before it answers.
        """
        if body is not UNSET:
            content = dumps(body)
        headers = {"content-type": "application/json"} if content is not None else {}
        if not safe:
            headers["idempotency-key"] = uuid.uuid4().hex
        query = {name: value for name, value in (params or {}).items() if value is not None}
        give_up = time.monotonic() + (self.patience if patience is None else patience)
        backoff, tries, unknown = Backoff(), 0, False
        while True:
            base = self.urls[self._at]
            try:
                response = await self.wire.exchange(
                    method,
                    base + path,
                    content=content,
                    params=query or None,
                    headers=headers,
                    timeout=httpx.Timeout(self.timeout + wait, connect=self.timeout, pool=None),
                )
                if response.status_code < 400:
                    return response.status_code, _json(response)
                error = problem(response.status_code, response.content, response.headers)
            except httpx.TransportError as cause:
                error = unreachable(base, cause)
            except NoJson as garbage:
                error = garbage
            if isinstance(error, Broken) and not safe:
                # The outcome is unknown: a proxy in front of the server may have passed the request on.
                error = Unavailable(str(error), unknown=True, status=error.status, problem=error.problem)
            if not isinstance(error, Unavailable):
                raise error
            tries += 1
            self.move_on(base)
            # What one try may have done is not undone by the next that fails.
            unknown = error.unknown = error.unknown or unknown
            pause = 0.0 if tries < len(self.urls) else max(backoff.pause(), retry_after(error))
            if time.monotonic() + pause > give_up:
                raise error
            await self.wire.pause(pause)

    @asynccontextmanager
    async def listen(self, path: str, params: Mapping[str, Any], last: str | None) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a stream of server-sent events."""
        base = self.urls[self._at]
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if last is not None:
            headers["last-event-id"] = last
        query = {name: value for name, value in params.items() if value is not None}
        # The server says something every so often, also when nothing happens; a minute of silence is a dead line.
        timeout = httpx.Timeout(self.timeout, read=60.0, pool=None)
        try:
            async with self.wire.lines(base + path, params=query or None, headers=headers, timeout=timeout) as (
                response,
                lines,
            ):
                if response.status_code >= 400:
                    raise problem(response.status_code, response.content, response.headers)
                yield lines
        except httpx.TransportError as cause:
            self.move_on(base)
            raise unreachable(base, cause) from cause

    def move_on(self, base: str) -> None:
        """Uses another server from now on, unless another request has switched already."""
        if self.urls[self._at] == base:
            self._at = (self._at + 1) % len(self.urls)


def _checked(urls: list[str]) -> list[str]:
    if not urls:
        raise ValueError("no server is named: give the url of one, like http://127.0.0.1:7070")
    for url in urls:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(
                f"{url!r} is not the URL of a server ({error}): expected one like http://127.0.0.1:7070"
            ) from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"{url!r} is not the URL of a server: expected one like http://127.0.0.1:7070")
    return [url.rstrip("/") for url in urls]


def quoted(name: str) -> str:
    """A name as a part of a path."""
    if name in (".", ".."):  # as they are they would be ways through the path
        return name.replace(".", "%2E")
    return quote(name, safe="")


def unreachable(base: str, cause: httpx.TransportError) -> AbideError:
    """What it means that no answer came."""
    said = str(cause).rstrip(".") or type(cause).__name__
    if isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)):
        return Unavailable(f"cannot reach {base}: {said}. Is `abide serve` running there?")
    if isinstance(cause, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)):
        return Invalid(f"the request to {base} cannot be sent: {said}")
    return Unavailable(f"{base} gave no answer: {said}. The request may have been carried out", unknown=True)


def problem(status: int, content: bytes, headers: Mapping[str, str]) -> AbideError:
    """The error that an answer stands for."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        body = {"detail": content[:200].decode(errors="replace")}
    text = str(body.get("detail") or body.get("title") or f"the server answered {status}")
    after = headers.get("retry-after")
    if after is not None:
        body.setdefault("retry_after", after)
    word = str(body.get("type", "")).rpartition("/")[2]
    if status in (408, 425, 429, 502, 503, 504) or word == "request_in_progress":
        # Only the server itself can say that nothing was done: what stands before it may have passed the request on.
        nothing_done = word == "unavailable" and str(body.get("type", "")).startswith("/problems/")
        return Unavailable(text, unknown=not nothing_done, status=status, problem=body)
    kind: type[AbideError]
    if status in (401, 403):
        kind = Unauthorized
    elif str(body.get("outcome", "")).startswith("rejected"):
        kind = Rejected
    elif status == 409 and "id" in body:
        kind = Duplicate
    elif status == 404:
        kind = NoTarget
    elif status < 500:
        kind = Invalid
    else:
        kind = Broken
    if kind in (Rejected, Invalid):
        text += _fields(body)
    return kind(text, status=status, problem=body)


def _fields(body: Mapping[str, Any]) -> str:
    """What is wrong field by field, for the text of an error; what the text says already is not said twice."""
    detail = str(body.get("detail"))
    said = [(field, each.message) for field, problems in by_field(body).items() for each in problems]
    problems = body.get("problems")
    if not said and isinstance(problems, list):
        said = [(str(each.get("step") or ""), str(each.get("message"))) for each in problems]
    new = [
        f"{field}: {message}" if field else message
        for field, message in said
        if field not in detail or message not in detail
    ]
    return f" ({'; '.join(new)})" if new else ""


def retry_after(error: AbideError) -> float:
    """How long the server asks to be left alone, in seconds."""
    try:
        return min(max(float(error.problem.get("retry_after", 0)), 0.0), 60.0)
    except (TypeError, ValueError):
        return 0.0


def _json(response: httpx.Response) -> Any:
    if not response.content:
        return None
    try:
        return json.loads(response.content)
    except RecursionError:
        why = "it is nested more deeply than Python reads"
    except ValueError as error:
        why = str(error)
    start = response.content[:80].decode(errors="replace")
    raise NoJson(
        f"{response.url} answered something that cannot be read as JSON ({start!r}: {why}): is it an abide server?",
        status=response.status_code,
        content=response.content,
    )
