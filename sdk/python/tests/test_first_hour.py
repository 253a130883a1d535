"""Mistakes that are made once by everybody: each is said, in words, where it is made, and once."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import eventually
from servers import Server

from abide import (
    Abide,
    Context,
    Graph,
    Machine,
    NotDone,
    Outcome,
    Rejected,
    Retry,
    Signal,
    Start,
    UpdateFailed,
    Worker,
    _code,
    client,
    done,
    job,
    step,
    task,
    update,
    worker,
)

Unique = Callable[[str], str]
NOWHERE = "http://127.0.0.1:9"


async def plain(n: int) -> int:
    return n


class Plain:
    pass


@job("first-hour")
async def marked(n: int) -> int:
    return n


@task("first-hour-task")
async def marked_task(n: int) -> int:
    return n


class Counter(Machine[int], name="first-hour-counter", retry=Retry(max_attempts=4, delay=0.01)):
    go = Signal("go", how=str)

    @step
    async def start(self, ctx: Context[int]) -> Outcome:
        if ctx.attempt < ctx.state:
            raise ConnectionError("the bank does not answer")
        return done(ctx.attempt) if ctx.state else ctx.wait_for(self.go, then=self.start)

    @update
    async def refuse(self, ctx: Context[int], why: str) -> None:
        raise ValueError(why)


# What a type checker would say is said when it runs, too.
WORKER: Any = Worker
GRAPH: Any = Graph


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: WORKER(NOWHERE, tasks=[plain]), "plain is not a job or a task: mark the function with @job"),
        (lambda: WORKER(NOWHERE, tasks=plain), r"tasks is a list: write tasks=\[plain\]"),
        (lambda: WORKER(NOWHERE, tasks=marked), r"tasks is a list: write tasks=\[marked\]"),
        (lambda: WORKER(NOWHERE, machines=Counter), r"machines is a list: write machines=\[Counter\]"),
        (lambda: WORKER(NOWHERE, tasks=[Counter]), r"Counter is a machine, not a task: write machines=\[Counter\]"),
        (lambda: WORKER(NOWHERE, machines=[marked]), r"marked is a job or a task, not a machine: write tasks=\[mar"),
        (lambda: WORKER(NOWHERE, machines=[Plain]), "Plain is not a machine: make it a machine: class Name"),
        (lambda: WORKER(NOWHERE, machines=["checkout"]), "'checkout' is not a machine: give a machine's class"),
        (lambda: GRAPH("g").task(plain), "plain is not a task: mark the function with"),
        (lambda: Start(plain, 1).wire(), "plain is nothing to start: mark the function with @job"),
        (lambda: Start(Plain).wire(), "Plain is nothing to start: make it a machine"),
    ],
)
def test_what_is_not_marked_is_said_with_its_name(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


def test_a_worker_that_is_never_run_says_so(caplog: pytest.LogCaptureFixture) -> None:
    Worker(NOWHERE, tasks=[marked], name="forgotten")
    gc.collect()
    said = "worker forgotten was made and never run, so nothing that it serves is run: call `await worker.run()`"
    assert caplog.text.count(said) == 1


@pytest.mark.filterwarnings("ignore:coroutine 'Worker.run' was never awaited")
async def test_a_worker_whose_run_is_not_awaited_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "FORGOTTEN", 0.05)
    kept = Worker(NOWHERE, tasks=[marked], name="kept")
    run = kept.run()

    async def said() -> bool:
        return "worker kept was made 0.05 s ago and does not run" in caplog.text

    await eventually(said)
    run.close()


async def test_a_worker_that_runs_is_not_said_to_be_forgotten(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "FORGOTTEN", 0.01)
    async with Worker(server.url, tasks=[marked]):
        await asyncio.sleep(0.05)
    gc.collect()
    assert "never run" not in caplog.text
    assert "does not run" not in caplog.text


def test_a_program_that_forgets_its_worker_says_so_when_it_ends(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from abide import Worker, job\n"
        "@job('j')\n"
        "def j() -> None: ...\n"
        "w = Worker('http://127.0.0.1:9', tasks=[j], name='w')\n"
    )
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=30)
    assert "worker w was made and never run" in ran.stderr


async def test_who_waits_without_a_worker_is_told_why(
    abide: Abide, unique: Unique, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DOUBT", 0.05)
    name = unique("nobody-runs-this")
    order = await abide.start(name)
    waiting = asyncio.ensure_future(abide.result(order))

    async def said() -> bool:
        text = f"instance {order.id} waits for a worker: no live worker serves queue default with {name}"
        return text in caplog.text

    await eventually(said)
    await asyncio.sleep(0.2)
    assert caplog.text.count("waits for a worker") == 1
    await order.cancel()
    with pytest.raises(NotDone):
        await waiting


@pytest.fixture
def untraced() -> None:
    _code._traced.clear()


@pytest.mark.usefixtures("untraced")
async def test_an_error_is_logged_in_a_line_and_its_traceback_once(
    abide: Abide, caplog: pytest.LogCaptureFixture
) -> None:
    async with Worker(abide, machines=[Counter]):
        for _ in range(3):
            assert await abide.result(await abide.start(Counter, 2), wait=10) == 2
    errors = [each for each in caplog.records if "the bank does not answer" in each.getMessage()]
    assert len(errors) == 6
    assert [bool(each.exc_info) for each in errors] == [True] + [False] * 5
    assert {each.levelno for each in errors} == {logging.WARNING}


async def test_an_update_that_is_refused_by_its_handler_is_no_warning(
    abide: Abide, caplog: pytest.LogCaptureFixture
) -> None:
    async with Worker(abide, machines=[Counter]):
        counter = await abide.start(Counter, 0)
        with pytest.raises(UpdateFailed, match="ValueError: not today"):
            await counter.update(Counter.refuse, "not today")
        await counter.cancel()
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_requests_are_not_logged_and_those_of_others_are(
    abide: Abide, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    import httpx2 as httpx

    caplog.set_level(logging.INFO)
    async with Worker(abide, tasks=[marked]):
        run = await abide.start(marked, 1)
        assert await run.result(wait=10) == 1
        await asyncio.to_thread(lambda: list(abide.sync.list(machine="first-hour")))
        assert [change.type async for change in abide.stream(instance=run.id)][-1] == "end"
    assert "HTTP Request" not in caplog.text
    async with httpx.AsyncClient() as http:
        await http.get(f"{server.url}/readyz")
    assert "HTTP Request" in caplog.text


async def test_a_server_that_is_away_is_logged_when_it_goes_and_when_it_is_back(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with Abide(own_server.url, patience=30) as abide, Worker(abide, tasks=[marked], name="quiet"):
        assert await abide.result(await abide.start(marked, 1), wait=10) == 1
        own_server.kill()
        await asyncio.sleep(1.5)
        await asyncio.to_thread(own_server.start)
        assert await abide.result(await abide.start(marked, 2), wait=20) == 2
    warnings = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.partition(": ")[0] for each in warnings] == ["worker quiet cannot claim from default"] * 2, warnings
    assert "over, after" in warnings[1]


@job("first-hour-blocks")
async def blocks(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251 - the mistake
    return "done"


async def test_a_step_that_blocks_the_loop_is_said_with_its_line_and_the_cure(
    abide: Abide, caplog: pytest.LogCaptureFixture
) -> None:
    async with Worker(abide, tasks=[blocks, marked]):
        assert await abide.result(await abide.start(blocks, 1.8), wait=20) == "done"
        assert await abide.result(await abide.start(marked, 1), wait=20) == 1
    blocked = [each.getMessage() for each in caplog.records if "is blocked for" in each.getMessage()]
    assert len(blocked) == 1, "once for each time"
    assert f"{os.path.basename(__file__)}:" in blocked[0]
    assert "in blocks: time.sleep(seconds)" in blocked[0]
    assert "await asyncio.to_thread(…)" in blocked[0]


async def test_a_step_that_blocks_the_loop_keeps_its_claim(abide: Abide) -> None:
    async with Worker(abide, tasks=[blocks], lease=1):
        run = await abide.start(blocks, 4.0)
        assert await run.result(wait=30) == "done"
        assert (await run.get()).attempt == 0
    kinds = [each.kind async for each in run.history()]
    assert "reclaimed" not in kinds, kinds


async def test_what_is_wrong_with_arguments_is_said_once(abide: Abide) -> None:
    async with Worker(abide, machines=[Counter]):
        counter = await abide.start(Counter, 0)
        with pytest.raises(Rejected) as wrong:
            await counter.signal(Counter.go, {"how": 5, "colour": "red"})
        await counter.cancel()
    text = str(wrong.value)
    for problems in wrong.value.validation_errors.values():
        for problem in problems:
            assert text.count(problem.message) == 1, text
