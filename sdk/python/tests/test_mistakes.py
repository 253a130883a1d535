"""Steps that end as no step should, messages that Python cannot read, signals at bad moments: the worker goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from conftest import blocked, eventually
from servers import Server, free_port
from stubborn_worker import stubborn

from abide import Abide, Context, Machine, NotDone, Outcome, Signal, Start, StepTimeout, Worker, done, job, step
from abide._salvage import salvaged
from abide._transport import NoJson, _json

Unique = Callable[[str], str]


@job("odd-thread")
def odd_thread(how: str) -> Any:
    if how == "stop iteration":
        return next(iter([]))  # a mistake that is easily made
    if how == "exit":
        sys.exit(3)
    raise OSError("no file \udcff")


@job("odd-async")
async def odd_async(how: str) -> Any:
    if how == "stop iteration":
        return next(iter([]))
    if how == "exit":
        sys.exit(3)
    task = asyncio.create_task(asyncio.sleep(60))
    await asyncio.sleep(0)
    task.cancel()
    return await task


@pytest.mark.parametrize(
    ("what", "how", "said"),
    [
        (odd_thread, "stop iteration", "RuntimeError: the step raised StopIteration"),
        (odd_async, "stop iteration", "RuntimeError: coroutine raised StopIteration"),
        (odd_thread, "exit", "RuntimeError: the step raised SystemExit: 3"),
        (odd_async, "exit", "RuntimeError: the step raised SystemExit: 3"),
        (odd_async, "cancelled", "RuntimeError: something that the step waited for was cancelled"),
        (odd_thread, "half a character", r"OSError: no file \\udcff"),
    ],
)
async def test_however_a_function_ends_it_is_an_error_of_its_step(abide: Abide, what: Any, how: str, said: str) -> None:
    async with Worker(abide, tasks=[odd_thread, odd_async]):
        for _ in range(2):  # the worker is there for the next one
            with pytest.raises(NotDone, match=said):
                await abide.result(await abide.start(what, how), wait=10)


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n is negative")


class Strict(Machine[Positive], name="strict"):
    @step
    async def start(self, ctx: Context[Positive]) -> Outcome:
        return done(ctx.state.n)


async def test_a_state_that_its_class_does_not_take_blocks(abide: Abide) -> None:
    async with Worker(abide, machines=[Strict]):
        run = await abide.start("strict", {"n": -1})
        found = await eventually(lambda: blocked(abide, run.id))
        assert "the state of strict cannot be read: ValueError: n is negative" in found.liveness_reason
        assert await abide.result(await abide.start(Strict, Positive(1)), wait=10) == 1


class Reader(Machine[Any], name="reader"):
    any = Signal("any")

    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        return ctx.wait_for(self.any, then=self.end)

    @step
    async def end(self, ctx: Context[Any]) -> Outcome:
        return done(ctx.awaited(self.any))


async def test_a_message_that_python_cannot_read_costs_nobody_but_its_receiver(abide: Abide) -> None:
    started = await abide.start_all(Start(Reader) for _ in range(10))
    ids = [one.id or 0 for one in started]
    async with Worker(abide, machines=[Reader]):
        for id in ids:

            async def waits(id: int = id) -> bool:
                return (await abide.get(id)).status == "awaiting_signal"

            await eventually(waits)
    for id in ids[1:]:
        await abide.signal(id, Reader.any, "fine")
    body = b'{"payload": ' + b"7" * 5000 + b"}"  # Python reads no number of more than 4300 digits
    url = f"{abide.urls[0]}/v1/instances/{ids[0]}/signals/any"
    await asyncio.to_thread(
        urllib.request.urlopen, urllib.request.Request(url, body, {"content-type": "application/json"})
    )
    async with Worker(abide, machines=[Reader], lease=60):
        found = await eventually(lambda: blocked(abide, ids[0]))
        assert "`awaited` cannot be read by Python" in found.liveness_reason
        for id in ids[1:]:
            assert await abide.result(id, wait=20) == "fine"


def test_claims_are_salvaged_field_by_field() -> None:
    number = b"1" * 5000
    answer = b'{"claims":[{"claim":"a","key":"},\\"[{","state":{"x":[1,{"y":"]"}]},"inbox":[{"id":' + number + b"}]},"
    answer += b'{"claim":"b","state":null,"awaited":[]},'
    answer += b'{"claim":"c","state":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}"
    with pytest.raises(NoJson, match="nested more deeply than Python reads"):
        _json(httpx.Response(200, content=answer.replace(number, b"1"), request=httpx.Request("POST", "http://a/")))
    first, second, third = salvaged(answer)
    assert (first["claim"], first["key"], first["state"]) == ("a", '},"[{', {"x": [1, {"y": "]"}]})
    assert "`inbox` cannot be read" in first["unreadable"]
    assert second == {"claim": "b", "state": None, "awaited": []}
    assert (third["claim"], "`state` cannot be read" in third["unreadable"]) == ("c", True)
    assert salvaged(b"<html>{}[],</html>") == []
    assert salvaged(b'{"claims":[]}') == []


class Late(Machine[list[str]], name="late", step_timeout=0.1):
    @step
    def start(self, ctx: Context[list[str]]) -> Outcome:
        while not ctx.lost:
            time.sleep(0.01)
        ctx.state.append("too late")
        return done()

    async def on_error(self, ctx: Context[list[str]], error: Exception) -> Outcome:
        assert isinstance(error, StepTimeout)
        await asyncio.sleep(0.1)
        return done([ctx.lost, *ctx.state])


async def test_a_thread_is_told_that_its_time_is_up_and_changes_nothing_any_more(abide: Abide) -> None:
    async with Worker(abide, machines=[Late]):
        assert await abide.result(await abide.start(Late, ["before"]), wait=10) == [False, "before"]


@pytest.mark.parametrize(("ends", "said"), [(True, "left"), (False, "begun")])
async def test_a_worker_that_is_asked_to_stop_does_not_wait_for_its_threads(
    own_server: Server, tmp_path: Path, ends: bool, said: str
) -> None:
    async with Abide(own_server.url) as abide:
        run = await abide.start(stubborn, ends)
        process = begun(own_server.url, tmp_path, grace=0.5)
        try:
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 10) == 0
        finally:
            process.kill()
        assert (tmp_path / "said").read_text() == said
        left = await abide.get(run)
        assert (left.status, left.attempt) == ("runnable", 0), "it is given back, and no lease is waited for"


async def test_the_second_signal_ends_the_grace_time(own_server: Server, tmp_path: Path) -> None:
    async with Abide(own_server.url) as abide:
        run = await abide.start(stubborn, True)
        process = begun(own_server.url, tmp_path, grace=600)
        try:
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, 0.5)
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 10) == 0
        finally:
            process.kill()
        assert (await abide.get(run)).status == "runnable"


def begun(url: str, home: Path, grace: float) -> subprocess.Popen[bytes]:
    """A worker in a process of its own that has begun a step."""
    said = home / "said"
    process = stubborn_process(url, home, grace)
    give_up = time.monotonic() + 20
    while not said.exists() or said.read_text() != "begun":
        assert time.monotonic() < give_up, "it did not begin"
        time.sleep(0.01)
    return process


def stubborn_process(url: str, home: Path, grace: float) -> subprocess.Popen[bytes]:
    script = str(Path(__file__).with_name("stubborn_worker.py"))
    env = {**os.environ, "SAID": str(home / "said")}
    with (home / "log").open("wb") as log:
        return subprocess.Popen([sys.executable, script, url, str(grace)], env=env, stderr=log)


async def test_a_worker_that_waits_for_a_server_can_be_stopped(tmp_path: Path) -> None:
    process = stubborn_process(f"http://127.0.0.1:{free_port()}", tmp_path, grace=1)
    try:

        async def waits() -> bool:
            return "waits for a server" in (tmp_path / "log").read_text()

        await eventually(waits, within=20)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 10) == 0
    finally:
        process.kill()


async def test_what_a_worker_is_run_for_may_fail_before_there_is_a_server() -> None:
    async def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await Worker(f"http://127.0.0.1:{free_port()}", tasks=[odd_async]).run_until(fails())
