"""A server that asks for tokens."""

from __future__ import annotations

import pytest
from crash_worker import EXPECTED, Four
from servers import Server

from abide import Abide, Unauthorized, Worker


async def test_each_does_what_its_token_allows(own_server: Server) -> None:
    operate, send, work = (own_server.token(role) for role in ("operate", "send", "work"))
    async with (
        Abide(own_server.url, operate) as operator,
        Abide(own_server.url, send) as sender,
        Worker(own_server.url, machines=[Four], token=work),
    ):
        order = await operator.start(Four, [])
        await sender.signal(order, Four.go, "go!")
        assert await operator.result(order, wait=30) == EXPECTED
        with pytest.raises(Unauthorized, match="operate"):
            await sender.start(Four, [])


async def test_a_token_that_is_missing_or_wrong_is_told(own_server: Server) -> None:
    own_server.token("operate")
    for token in (None, "abide_wrong"):
        async with Abide(own_server.url, token) as abide:
            with pytest.raises(Unauthorized, match="token"):
                await abide.get(1)
