"""Workers and servers that die: nothing is lost, and nothing is committed twice."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from crash_worker import EXPECTED, Four
from servers import Server

from abide import Abide, Context, Machine, Outcome, Start, Worker, done, job, step

Unique = Callable[[str], str]


class Process:
    """A worker in a process of its own."""

    def __init__(self, name: str, urls: Iterable[str], log: Path, step: float = 0.002) -> None:
        env = {**os.environ, "STEPS_LOG": str(log), "STEP_SLEEP": str(step)}
        script = str(Path(__file__).with_name("crash_worker.py"))
        with log.with_suffix(".stderr").open("ab") as said:
            self._process = subprocess.Popen([sys.executable, script, name, *urls], env=env, stderr=said)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """Asks it to stop; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)


async def ended_once(abide: Abide, ids: list[int]) -> None:
    """Each has ended well, with every step once in its ledger and once in its history."""
    results = await asyncio.gather(*(abide.result(id, wait=60) for id in ids))
    wrong = [(id, result) for id, result in zip(ids, results, strict=True) if result != EXPECTED]
    assert wrong == []
    for id in ids[:: max(1, len(ids) // 25)]:
        completed = [event async for event in abide.history(id) if event.kind == "step_completed"]
        assert len(completed) == 4, completed


async def test_a_worker_killed_in_the_middle_is_replaced(own_server: Server, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    async with Abide(own_server.url) as abide:
        started = await abide.start_all(Start(Four, []) for _ in range(200))
        ids = [one.id for one in started if one.id is not None]
        assert len(ids) == 200
        first = Process("w", [own_server.url], log, step=0.02)
        for id in ids:
            await abide.signal(id, Four.go, "go!", dedup="1")
        await begun(log, 200)
        first.kill()
        second = Process("w", [own_server.url], log)  # the same name: what the first held is given back at once
        await ended_once(abide, ids)
        assert second.terminate() == 0
    steps = Counter(log.read_text().split())
    assert len(steps) == 800, "every step was begun"
    assert sum(steps.values()) < 800 + 50, "and few twice: those that were in its hands"


async def begun(log: Path, steps: int) -> None:
    """Waits until so many steps were begun."""

    async def enough() -> bool:
        return log.exists() and log.read_text().count("\n") >= steps

    await eventually(enough, within=60)


async def test_what_a_dead_worker_held_comes_back_with_its_lease(own_server: Server, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    async with Abide(own_server.url) as abide:
        started = await abide.start_all(Start(Four, []) for _ in range(50))
        ids = [one.id or 0 for one in started]
        first = Process("", [own_server.url], log, step=60)  # it never ends a step
        await begun(log, 16)
        first.kill()
        for id in ids:
            await abide.signal(id, Four.go, "go!")
        async with Worker(abide, machines=[Four], lease=2):
            await ended_once(abide, ids)
        reclaimed = 0
        for id in ids:
            reclaimed += "reclaimed" in [event.kind async for event in abide.history(id)]
        assert reclaimed >= 16


async def test_a_worker_that_wakes_up_too_late_commits_nothing(own_server: Server, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    async with Abide(own_server.url) as abide:
        started = await abide.start_all(Start(Four, []) for _ in range(16))
        ids = [one.id or 0 for one in started]
        first = Process("", [own_server.url], log, step=1.0)
        await begun(log, 16)
        first.freeze()  # with all of them in its hands
        for id in ids:
            await abide.signal(id, Four.go, "go!")
        async with Worker(abide, machines=[Four], lease=2):
            await ended_once(abide, ids)
        first.thaw()
        assert first.terminate() == 0, "it ends its steps, and their outcomes are stale"
        await ended_once(abide, ids)


async def test_a_server_restarted_under_a_worker_loses_nothing(own_server: Server) -> None:
    async with Abide(own_server.url, patience=30) as abide, Worker(own_server.url, machines=[Four], lease=5):
        started = await abide.start_all(Start(Four, []) for _ in range(200))
        ids = [one.id or 0 for one in started]

        async def send(id: int) -> None:
            await abide.signal(id, Four.go, "go!", dedup="1")

        half = [asyncio.create_task(send(id)) for id in ids]
        await asyncio.sleep(0.1)
        await asyncio.to_thread(own_server.kill)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(own_server.start)
        over = [one async for one in abide.list(machine="four-steps", status="done", page=1000)]
        assert len(over) < 200, "it was killed in the middle"
        await asyncio.gather(*half)
        await ended_once(abide, ids)


class Slow(Machine[Any], name="slow"):
    began = 0
    finished = 0
    cancelled = 0

    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        Slow.began += 1
        try:
            await asyncio.sleep(ctx.state)
        except asyncio.CancelledError:
            Slow.cancelled += 1
            raise
        Slow.finished += 1
        return done(ctx.attempt)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Slow.began = Slow.finished = Slow.cancelled = 0


async def test_a_cancelled_instance_ends_its_running_step(abide: Abide) -> None:
    async with Worker(abide, machines=[Slow], lease=1):
        run = await abide.start(Slow, 30)

        async def began() -> bool:
            return Slow.began > 0

        await eventually(began)
        await abide.cancel(run, "enough")

        async def left() -> bool:
            return Slow.cancelled > 0

        await eventually(left, within=5)


async def test_a_long_step_keeps_its_claim_by_heartbeats(abide: Abide) -> None:
    async with Worker(abide, machines=[Slow], lease=2):
        run = await abide.start(Slow, 4.5)
        assert await abide.result(run, wait=30) == 0
        assert Slow.began == 1


async def test_a_worker_that_stops_lets_steps_end_and_gives_the_rest_back(abide: Abide, server: Server) -> None:
    async with Worker(server.url, machines=[Slow], grace=1):
        short, long = await abide.start(Slow, 0.5), await abide.start(Slow, 60)

        async def both() -> bool:
            return Slow.began == 2

        await eventually(both)
    assert (Slow.finished, Slow.cancelled) == (1, 1)
    assert await abide.result(short, wait=1) == 0
    given_back = await abide.get(long)
    assert (given_back.status, given_back.attempt) == ("runnable", 0)
    await abide.cancel(long, "enough")


async def test_a_named_worker_that_comes_back_has_died(own_server: Server, tmp_path: Path) -> None:
    log = tmp_path / "steps.log"
    async with Abide(own_server.url) as abide:
        run = await abide.start(Four, [], max_deaths=2)
        for deaths in (1, 2):
            doomed = Process("named", [own_server.url], log, step=60.0)
            await begun(log, deaths)
            doomed.kill()
            async with Worker(own_server.url, machines=[Slow], name="named"):  # it runs others, and takes back at once
                found = await abide.get(run)
                assert (found.attempt, found.deaths) == (deaths, deaths)
        assert found.status == "failed"
        assert (found.last_error or "").startswith("the worker died 2 times in step start")
        kinds = [event.kind async for event in abide.history(run)]
        assert kinds == ["started", "reclaimed", "reclaimed", "failed"]


async def test_a_step_that_blocks_the_loop_keeps_its_claim(abide: Abide) -> None:
    @job("blocks-the-loop")
    async def blocks(seconds: float, ctx: Context[Any]) -> int:
        time.sleep(seconds)  # noqa: ASYNC251 - the mistake
        return ctx.deaths

    async with Worker(abide, tasks=[blocks], lease=1):
        run = await abide.start(blocks, 3.0)
        assert await abide.result(run, wait=30) == 0
        assert (await abide.get(run)).attempt == 0


async def test_a_worker_waits_for_a_server_that_is_not_there_yet(own_server: Server) -> None:
    own_server.kill()
    running = asyncio.create_task(Worker(own_server.url, machines=[Slow]).run())
    await asyncio.sleep(0.3)
    await asyncio.to_thread(own_server.start)
    async with Abide(own_server.url) as abide:
        assert await abide.result(await abide.start(Slow, 0), wait=30) == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_run_until_ends_with_what_it_waits_for(abide: Abide) -> None:
    run = await abide.start(Slow, 0)
    began = time.monotonic()
    assert await Worker(abide, machines=[Slow]).run_until(abide.result(run, wait=30)) == 0
    assert time.monotonic() - began < 5
