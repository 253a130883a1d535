"""Two servers on one PostgreSQL, with workers and clients on both; one server is killed in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

from crash_worker import Four
from servers import Server
from test_crashes import Process, begun, ended_once

from abide import Abide, Start

INSTANCES = 300


async def test_nothing_is_lost_and_nothing_happens_twice(postgres: str, tmp_path: Path) -> None:
    servers = [Server(postgres, tmp_path / name) for name in ("a", "b")]
    await asyncio.gather(*(asyncio.to_thread(server.start) for server in servers))
    urls = [server.url for server in servers]
    log = tmp_path / "steps.log"
    workers = [Process("", [first, second], log) for first, second in (urls, urls[::-1])]
    clients = [Abide(urls, patience=30), Abide(urls[::-1], patience=30)]
    try:
        starts = [Start(Four, [], key=f"two-servers-{n}") for n in range(INSTANCES)]
        halves = await asyncio.gather(*(client.start_all(starts[n::2]) for n, client in enumerate(clients)))
        ids = [one.id or 0 for half in halves for one in half]

        async def send(n: int) -> None:
            # Each is sent twice, by both clients: it counts once.
            for client in (clients[n % 2], clients[(n + 1) % 2]):
                await client.signal(ids[n], Four.go, "go!", dedup="1")

        async def kill_in_the_middle() -> None:
            await begun(log, INSTANCES)
            await asyncio.to_thread(servers[0].kill)
            assert log.read_text().count("\n") < 4 * INSTANCES, "there was something left to do"

        killing = asyncio.create_task(kill_in_the_middle())
        gate = asyncio.Semaphore(16)

        async def one(n: int) -> None:
            async with gate:
                await send(n)

        await asyncio.gather(*(one(n) for n in range(INSTANCES)))
        await killing
        await ended_once(clients[0], ids)
        for id in ids:
            applied = [one.status async for one in clients[1].signals(id)]
            assert applied == ["applied"], (id, applied)
        assert [worker.terminate() for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
        await asyncio.gather(*(client.close() for client in clients))
        servers[0].kill()
        servers[1].stop()
