"""The test kit: years pass in a moment, in order, and nothing is skipped."""

from __future__ import annotations

import asyncio
import subprocess
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from servers import binary, environment

from abide import Abide, Context, Event, Machine, NoTarget, Outcome, Retry, Signal, Worker, done, job, next_, step, stop
from abide.testing import Kit, SyncKit


@dataclass
class Order:
    item: str
    seen: list[str] = field(default_factory=list)


class Checkout(Machine[Order], name="kit-checkout"):
    paid = Signal("paid", amount=int)

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, timeout=timedelta(days=30), then=self.ship)

    @step
    async def ship(self, ctx: Context[Order]) -> Outcome:
        if ctx.timed_out:
            return stop("payment never came")
        ctx.state.seen.append(f"{ctx.awaited(self.paid).amount} paid")
        return next_(self.end, delay=timedelta(days=365))

    @step
    async def end(self, ctx: Context[Order]) -> Outcome:
        return done(ctx.state.seen)


class Ticks(Machine[int], name="kit-ticks"):
    """A step each day, however far the time is moved at once."""

    @step
    async def start(self, ctx: Context[int]) -> Outcome:
        if ctx.state == 0:
            return done("over")
        return next_(self.start, delay=timedelta(days=1), state=ctx.state - 1)


@job("kit-flaky", retry=Retry(max_attempts=4, delay=60, factor=2))
async def flaky(n: int, ctx: Context[int]) -> int:
    if ctx.attempt < n:
        raise ConnectionError("the bank does not answer")
    return ctx.attempt


@job("kit-outside")
async def outside(n: int) -> int:
    await asyncio.sleep(n)
    return n


async def test_a_deadline_passes_in_a_moment_and_not_before() -> None:
    async with Kit(machines=[Checkout]) as kit:
        before, began = await kit.now(), time.monotonic()
        order = await kit.abide.start(Checkout, Order("kettle"))
        await kit.advance(timedelta(days=29, hours=23))
        assert (await order.get()).status == "awaiting_signal"
        await kit.advance(timedelta(hours=1))
        seen = await order.get()
        assert (seen.status, seen.last_error) == ("failed", "payment never came")
        assert timedelta(days=30) <= await kit.now() - before < timedelta(days=30, minutes=1)
        assert time.monotonic() - began < 20


async def test_messages_come_when_they_are_sent_and_delays_pass() -> None:
    async with Kit(machines=[Checkout]) as kit:
        order = await kit.abide.start(Checkout, Order("kettle"))
        await kit.advance(timedelta(days=10))
        await order.signal(Checkout.paid, {"amount": 5})
        await kit.settle()
        assert (await order.get()).step == "end"
        await kit.advance(timedelta(days=366))
        assert await order.result(wait=0) == ["5 paid"]


async def test_nothing_is_skipped_however_far_the_time_is_moved() -> None:
    async with Kit(machines=[Ticks], tasks=[flaky]) as kit:
        ticks = await kit.abide.start(Ticks, 50)
        tries = await kit.abide.start(flaky, 3)
        await kit.advance(timedelta(days=49))
        assert await tries.result(wait=0) == 3
        assert (await ticks.get()).status == "scheduled"
        await kit.advance(timedelta(days=2))
        assert await ticks.result(wait=0) == "over"
        assert [each.kind async for each in ticks.history()].count("reclaimed") == 0


async def test_an_event_is_waited_for_until_its_time_is_up() -> None:
    class Waits(Machine[None], name="kit-waits"):
        @step
        async def start(self, ctx: Context[None]) -> Outcome:
            return ctx.wait_for(Event("kit.paid"), timeout=3600, then=self.end)

        @step
        async def end(self, ctx: Context[None]) -> Outcome:
            return done(ctx.timed_out)

    async with Kit(machines=[Waits]) as kit:
        late, early = await kit.abide.start(Waits), await kit.abide.start(Waits)
        await kit.settle()
        await early.cancel()
        await kit.advance(3601)
        assert await late.result(wait=0) is True


async def test_a_step_that_waits_for_something_outside_is_not_waited_for() -> None:
    async with Kit(tasks=[outside]) as kit:
        run = await kit.abide.start(outside, 3)
        began = time.monotonic()
        await kit.settle()
        assert time.monotonic() - began < 3
        assert await run.result(wait=10) == 3


def test_a_test_that_is_not_async_has_the_same() -> None:
    with SyncKit(machines=[Checkout], tasks=[flaky]) as kit:
        before = kit.now()
        order = kit.abide.start(Checkout, Order("kettle"))
        tries = kit.abide.start(flaky, 2)
        kit.settle()
        assert order.get().status == "awaiting_signal"
        kit.advance(timedelta(days=31))
        assert order.get().last_error == "payment never came"
        assert tries.result(wait=0) == 2
        assert kit.now() - before >= timedelta(days=31)
    with pytest.raises(RuntimeError, match="did not start"), SyncKit(tasks=[outside], binary="/bin/true"):
        pass


async def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABIDE_BIN", "/nowhere/abide")
    with pytest.raises(RuntimeError, match=r"the server's program is not there \(/nowhere/abide\): install abide"):
        Kit(tasks=[outside])
    with pytest.raises(RuntimeError, match="did not start"):
        async with Kit(tasks=[outside], binary="/bin/true"):
            pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--store", "sqlite:orders.db"], "a test clock lets every caller move the time: it is for a store in memory"),
        (["--store", "memory:", "--listen", "0.0.0.0:0"], "which others can reach"),
    ],
)
def test_a_test_clock_is_refused_where_it_could_do_harm(tmp_path: Path, arguments: list[str], said: str) -> None:
    command = [str(binary()), "serve", "--test-clock", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=30)
    assert ran.returncode != 0
    assert said in ran.stderr
    assert not (tmp_path / "orders.db").exists()


async def test_other_servers_have_no_such_clock(abide: Abide) -> None:
    for method in ("GET", "POST"):
        with pytest.raises(NoTarget):
            await abide._transport.call(method, "/test/clock", body={"by_ms": 1}, safe=True)
    async with Worker(abide, tasks=[outside]):
        assert await abide.result(await abide.start(outside, 0), wait=10) == 0
