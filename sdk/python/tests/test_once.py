"""One call has one effect, whatever stands between the client and the server (rule 1.5).

A proxy that answered 503 after the server had done the work once gave several instances from one start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from conftest import collected
from servers import Server

from abide import Abide

PAGE = b"<h1>Service Unavailable</h1>"
CUT = None


@asynccontextmanager
async def proxy(server: Server, answer: tuple[int, bytes] | None, times: int) -> AsyncIterator[str]:
    """Passes requests on, and gives that answer to so many writes after the server has done them; None: hangs up."""
    left = times

    async def message(reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        return head + await reader.readexactly(int(lengths[0]) if lengths else 0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        try:
            while True:
                request = await message(reader)
                upstream, to = await asyncio.open_connection("127.0.0.1", server.port)
                to.write(request)
                response = await message(upstream)
                to.close()
                if not request.startswith(b"GET") and left > 0:
                    left -= 1
                    if answer is None:
                        break
                    status, body = answer
                    response = f"HTTP/1.1 {status} x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


@pytest.mark.parametrize("answer", [(503, PAGE), (502, PAGE), (504, b""), (200, PAGE), CUT])
async def test_each_call_has_one_effect(
    any_server: Server, unique: Callable[[str], str], answer: tuple[int, bytes] | None
) -> None:
    # rule 1.5
    machine, event = unique("machine"), unique("event")
    async with Abide(any_server.url) as direct:
        async with proxy(any_server, answer, 2) as url, Abide(url) as abide:
            started = await abide.start(machine)
        assert [one.id for one in await collected(direct.list(machine=machine))] == [started.id]
        async with proxy(any_server, answer, 2) as url, Abide(url) as abide:
            receipt = await abide.signal(started, "go", 1)
        assert [one.id for one in await collected(direct.signals(started))] == [receipt.command_id]
        async with proxy(any_server, answer, 2) as url, Abide(url) as abide:
            await abide.publish(event, 1)
        assert len(await collected(direct.events(type=event))) == 1
        async with proxy(any_server, answer, 2) as url, Abide(url) as abide:
            await abide.cancel(started, "no")  # and does not learn that it has ended
        assert (await direct.get(started)).status == "cancelled"
