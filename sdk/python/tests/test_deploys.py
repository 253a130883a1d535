"""Deploys: what one build of a worker cannot run waits for another, and nothing is lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conftest import blocked, collected, eventually
from servers import Server

from abide import Abide, Context, Machine, Outcome, Signal, Worker, done, next_, step
from abide._build import build_of

Unique = Callable[[str], str]


@dataclass
class OldOrder:
    item: str


@dataclass
class NewOrder:
    item: str
    currency: str


class OldShop(Machine[OldOrder], name="deployed-shop"):
    paid = Signal("paid", amount=int)

    @step(first=True)
    async def begin(self, ctx: Context[OldOrder]) -> Outcome:
        return ctx.wait_for(self.paid, then=self.ship)

    @step
    async def ship(self, ctx: Context[OldOrder]) -> Outcome:
        return done([ctx.state.item, ctx.awaited(self.paid).amount, ctx.attempt])


class NewShop(Machine[NewOrder], name="deployed-shop"):
    paid = Signal("paid", amount=int)

    @step(first=True)
    async def begin(self, ctx: Context[NewOrder]) -> Outcome:
        return ctx.wait_for(self.paid, then=self.ship)

    @step
    async def ship(self, ctx: Context[NewOrder]) -> Outcome:
        return done("never")


class OldWalk(Machine[dict[str, Any]], name="deployed-walk"):
    @step(first=True)
    async def begin(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return next_("pack")


class NewWalk(Machine[dict[str, Any]], name="deployed-walk"):
    @step(first=True)
    async def begin(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return next_(self.pack)

    @step
    async def pack(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return done(ctx.attempt)


async def test_a_state_that_a_build_cannot_read_waits_for_one_that_can(any_server: Server, unique: Unique) -> None:
    # rule 12.4
    async with Abide(any_server.url) as abide:
        key = unique("order")
        async with Worker(abide, machines=[OldShop], build="1"):
            run = await abide.start(OldShop, OldOrder("kettle"), key=key)
            await eventually(lambda: waits(abide, run.id))
        async with Worker(abide, machines=[NewShop], build="2"):
            await abide.signal(key, OldShop.paid, {"amount": 7})
            found = await eventually(lambda: blocked(abide, run.id))
            assert "NewOrder needs currency" in found.liveness_reason
            assert "build 2" in found.liveness_reason
            assert (found.attempt, found.signals_pending) == (0, 1)
        async with Worker(abide, machines=[OldShop], build="1"):
            assert await abide.result(run, wait=30) == ["kettle", 7, 0]


async def waits(abide: Abide, instance: int) -> bool:
    return (await abide.get(instance)).status == "awaiting_signal"


async def test_old_and_new_workers_together_run_all_to_the_end(any_server: Server) -> None:
    # rules 12.4 and 2.6: the old one does not know the second step, and does not get it again
    async with Abide(any_server.url) as abide:
        old = Worker(abide, machines=[OldWalk], build="old")
        new = Worker(abide, machines=[NewWalk], build="new")
        async with old, new:
            runs = [await abide.start(NewWalk, {}) for _ in range(40)]
            results = await asyncio.gather(*(abide.result(one, wait=60) for one in runs))
        assert results == [0] * 40, "no attempt was counted"
        kinds = [each.kind for each in await collected(abide.history(runs[0].id))]
        assert kinds.count("blocked") <= 1
        assert "failed" not in kinds


def test_a_build_is_named_by_what_is_in_its_files() -> None:
    assert build_of([OldShop]) == build_of([NewShop, OldShop]), "they are in one file"
    assert build_of([OldShop]) != build_of([OldShop, Server])
    assert len({build_of([]), build_of([])}) == 2, "what has no file is a build of its own"
    assert Worker("http://127.0.0.1:1", machines=[OldShop], build="7").build == "7"
