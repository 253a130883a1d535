"""What is sent again, and what is not: against a server that answers as a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from abide import Abide, Broken, Invalid, Rejected, Unauthorized, Unavailable
from abide._commits import Commits

Answer = tuple[int, Any, dict[str, str]] | None

STARTED: Answer = (201, {"id": 7, "key": None, "run": 1, "colour": "new"}, {})
FULL: Answer = (503, {"type": "/problems/unavailable", "detail": "the server is full"}, {"Retry-After": "0"})
UNKNOWN: Answer = (504, {"type": "/problems/unknown", "detail": "the answer of the database got lost"}, {})
HANG_UP: Answer = None


@asynccontextmanager
async def scripted(*answers: Answer, keys: list[str] | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that gives these answers, one by one; its url, and what it was asked."""
    left, asked = list(answers), []
    keys = [] if keys is None else keys

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            asked.append(line.decode().rsplit(" ", 1)[0])
            length = 0
            while (header := await reader.readline()).strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
                if header.lower().startswith(b"idempotency-key:"):
                    keys.append(header.split(b":")[1].strip().decode())
                if header.lower().startswith(b"last-event-id:"):
                    asked[-1] += f" after {header.split(b':')[1].strip().decode()}"
            await reader.readexactly(length)
            answer = left.pop(0)
            if answer is None:
                break
            status, body, headers = answer
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: {len(content)}\r\n{head}\r\n".encode() + content)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    finally:
        server.close()


async def test_a_full_server_is_asked_again_for_it_has_done_nothing() -> None:
    late: Answer = (408, {"type": "/problems/slow_head", "detail": "it did not arrive in time: send it again"}, {})
    async with scripted(FULL, late, STARTED) as (url, asked), Abide(url) as abide:
        started = await abide.start("m")
        assert started.id == 7
        assert started.extra == {"colour": "new"}, "what is not known is kept"
        assert len(asked) == 3


GATEWAY: Answer = (502, b"<h1>Bad Gateway</h1>", {})
STRANGER: Answer = (503, b"<h1>Service Unavailable</h1>", {"Retry-After": "0"})
WELCOME: Answer = (200, b"<h1>Please log in</h1>", {})
OOPS: Answer = (500, {"detail": "oops"}, {})
SLOW_DOWN: Answer = (429, b"", {})


@pytest.mark.parametrize("lost", [UNKNOWN, HANG_UP, GATEWAY, STRANGER, WELCOME, OOPS, SLOW_DOWN])
async def test_a_write_that_may_have_been_done_is_sent_again_under_its_key(lost: Answer) -> None:
    # rule 1.5
    keys: list[str] = []
    async with scripted(lost, lost, STARTED, STARTED, keys=keys) as (url, asked), Abide(url) as abide:
        assert (await abide.start("m")).id == 7
        assert len(asked) == 3
        assert len(set(keys)) == 1
        await abide.start("m")
        assert len(keys) == 4
        assert len(set(keys)) == 2, "another call has another key"


async def test_what_is_unknown_stays_so_when_no_server_is_left_to_ask() -> None:
    # rule 1.5: an earlier try may have been carried out, whatever becomes of the later ones.
    async with scripted(GATEWAY, *[FULL] * 50) as (url, _), Abide(url, patience=0.3) as abide:
        with pytest.raises(Unavailable) as failed:
            await abide.start("m")
        assert failed.value.unknown
    async with scripted(*[FULL] * 50) as (url, _), Abide(url, patience=0.3) as abide:
        with pytest.raises(Unavailable) as failed:
            await abide.start("m")
        assert not failed.value.unknown


@pytest.mark.parametrize(
    "call",
    [
        lambda abide: abide.signal(7, "go"),
        lambda abide: abide.publish("t"),
        lambda abide: abide.update(7, "u"),
        lambda abide: abide.cancel(7, "no"),
        lambda abide: abide.get(7),
    ],
)
async def test_reads_and_writes_of_every_kind_are_sent_again(call: Callable[[Abide], Awaitable[Any]]) -> None:
    everything = {
        "outcome": "signal_received",
        "event_id": "1",
        "update_id": 1,
        "update_status": "completed",
        "id": 7,
        "machine": "m",
        "version": 1,
        "status": "done",
    }
    async with scripted(HANG_UP, UNKNOWN, (200, everything, {})) as (url, asked), Abide(url) as abide:
        await call(abide)
        assert len(asked) == 3


async def test_errors_are_classed_by_what_can_be_done() -> None:
    answers: list[tuple[int, type[Exception]]] = [
        (400, Invalid),
        (401, Unauthorized),
        (403, Unauthorized),
        (413, Invalid),
        (500, Broken),
    ]
    for status, kind in answers:
        async with scripted((status, {"detail": "said so"}, {})) as (url, _), Abide(url) as abide:
            with pytest.raises(kind, match="said so") as met:
                await abide.get(7)
            assert getattr(met.value, "status", None) == status
    async with scripted((200, b"<html>", {})) as (url, _), Abide(url) as abide:
        with pytest.raises(Broken, match="is it an abide server"):
            await abide.get(7)


async def test_the_next_server_is_asked_when_one_is_full_or_gone() -> None:
    async with (
        scripted(FULL, HANG_UP) as (full, asked),
        scripted(STARTED, STARTED) as (other, asked_too),
        Abide([full, other]) as abide,
    ):
        await abide.start("m")
        assert (len(asked), len(asked_too)) == (1, 1)
        await abide.start("m")
        assert (len(asked), len(asked_too)) == (1, 2), "and stays there"


async def test_the_token_is_sent() -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, Abide(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "secret") as abide:
        with pytest.raises(Unauthorized):
            await abide.get(7)
    assert b"authorization: bearer secret" in seen[0].lower()


def stream_of(*parts: str) -> Answer:
    return 200, "".join(parts).encode(), {"Content-Type": "text/event-stream"}


async def test_a_stream_that_breaks_is_taken_up_where_it_was() -> None:
    first = stream_of(
        ": hello\n\n", 'id: 1\nevent: done\ndata: {"n":\ndata: 1}\n\n', "id: 2\nevent: done\ndata: {}\n\n"
    )
    then = stream_of("id: 3\ndata: [1]\n\n")
    async with scripted(first, FULL, then) as (url, asked), Abide(url) as abide:
        got = []
        async for change in abide.stream(types=["done", "failed"]):
            got.append((change.id, change.type, change.data))
            if len(got) == 3:
                break
        assert got == [("1", "done", {"n": 1}), ("2", "done", {}), ("3", "message", [1])]
        path = "GET /v1/stream?types=done%2Cfailed"
        assert asked == [path, f"{path} after 2", f"{path} after 2"]


def test_a_url_that_is_none_is_refused_at_once() -> None:
    wrong: Any
    for wrong in ("", "127.0.0.1:7070", "ftp://x", []):
        with pytest.raises(ValueError, match="http"):
            Abide(wrong)


async def test_an_error_about_a_limit_says_both_numbers() -> None:
    over = {"limit": "state_bytes", "most": 100, "met": 204, "detail": "204 is over the limit state_bytes of 100"}
    too_large: Answer = (413, over, {})
    full: Answer = (409, {**over, "outcome": "rejected_limit_exceeded", "reason": "inbox_full"}, {})
    other: Answer = (422, {"detail": "invalid request body"}, {})
    async with scripted(too_large, full, other) as (url, _), Abide(url) as abide:
        with pytest.raises(Invalid) as large:
            await abide.start("m")
        with pytest.raises(Rejected) as rejected:
            await abide.signal("k", "go")
        with pytest.raises(Invalid) as wrong:
            await abide.start("m")
    for error in (large.value, rejected.value):
        assert (error.limit, error.most, error.met) == ("state_bytes", 100, 204)
    assert (wrong.value.limit, wrong.value.most, wrong.value.met) == (None, None, None)


async def test_one_outcome_that_spoils_a_batch_is_found_and_the_others_are_committed() -> None:
    too_large: Answer = (413, {"detail": "the body is over the limit"}, {})

    def committed(claim: str) -> Answer:
        return 200, {"results": [{"claim": claim, "status": "committed", "duplicate": False}]}, {}

    async with (
        scripted(FULL, HANG_UP, too_large, committed("a"), too_large, committed("c")) as (url, asked),
        Abide(url) as abide,
    ):
        commits = Commits(abide._transport, "w")
        running = asyncio.create_task(commits.run())
        results = await asyncio.gather(*(commits.commit(claim, b"{}") for claim in "abc"))
        running.cancel()
    assert [status for status, _ in results] == ["committed", "refused", "committed"]
    assert results[1][1] == "the body is over the limit"
    assert len(asked) == 6
