"""A machine that waits until its own state says so; an update changes that from outside, and is answered.

``python examples/approval_ready.py``
"""

import asyncio
from dataclasses import dataclass

from abide import Abide, Context, Machine, Outcome, Reply, Worker, done, next_, step, update


@dataclass
class Approval:
    ready: bool = False


class ApprovalReady(Machine[Approval], name="approval-ready"):
    @step
    async def start(self, ctx: Context[Approval]) -> Outcome:
        return ctx.wait_for("nothing", then=self.end)  # the update lets it go on

    @step
    async def end(self, ctx: Context[Approval]) -> Outcome:
        return done({"ready": ctx.state.ready})

    @update("set-ready")
    async def set_ready(self, ctx: Context[Approval], ready: bool) -> bool | Reply[bool]:
        ctx.state.ready = ready
        return Reply(True, then=next_(self.end)) if ready else False


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[ApprovalReady]):
        run = await abide.start(ApprovalReady, Approval())
        print(f"set to {await run.update(ApprovalReady.set_ready, False)}")
        print(f"still there: {(await abide.get(run)).state}")
        print(f"set to {await run.update(ApprovalReady.set_ready, True)}")
        print(await abide.result(run))


asyncio.run(main())
