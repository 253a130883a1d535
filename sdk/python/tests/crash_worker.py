"""A worker in a process of its own, to be killed: notes every step it begins in a file."""

from __future__ import annotations

import asyncio
import os
import sys

from abide import Context, Machine, Outcome, Signal, Worker, done, next_, step

Ledger = list[str]


def note(ctx: Context[Ledger]) -> None:
    """Notes that this step was begun, where the test can see it."""
    path = os.environ.get("STEPS_LOG")
    if path:
        with open(path, "a") as log:
            log.write(f"{ctx.token}\n")


class Four(Machine[Ledger], name="four-steps"):
    """Four steps and a signal; each appends to the ledger."""

    go = Signal("go", str)

    @step
    async def start(self, ctx: Context[Ledger]) -> Outcome:
        note(ctx)
        await asyncio.sleep(float(os.environ.get("STEP_SLEEP", "0.002")))
        ctx.state.append("start")
        return next_(self.second)

    @step
    async def second(self, ctx: Context[Ledger]) -> Outcome:
        note(ctx)
        ctx.state.append("second")
        return ctx.wait_for(self.go, then=self.third)

    @step
    async def third(self, ctx: Context[Ledger]) -> Outcome:
        note(ctx)
        await asyncio.sleep(0.002)
        ctx.state += ["third", *ctx.awaited_all(self.go)]
        return next_(self.end)

    @step
    async def end(self, ctx: Context[Ledger]) -> Outcome:
        note(ctx)
        return done([*ctx.state, "end"])


EXPECTED = ["start", "second", "third", "go!", "end"]


if __name__ == "__main__":
    name, *urls = sys.argv[1:]
    asyncio.run(Worker(urls, machines=[Four], name=name or None, lease=2, grace=5).run())
