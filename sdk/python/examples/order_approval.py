"""An order that waits for somebody's approval, which other processes can give.

``python examples/order_approval.py`` starts it and waits;
``python examples/order_approval.py approve Taylor`` in another terminal lets it go on.
"""

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

from abide import Abide, Context, Machine, Outcome, Signal, Worker, done, step


@dataclass
class Approval:
    approved_by: str


class OrderApproval(Machine[Any], name="order-approval"):
    approved = Signal("approved-by", Approval)

    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        return ctx.wait_for(self.approved, then=self.end)

    @step
    async def end(self, ctx: Context[Any]) -> Outcome:
        approval = ctx.awaited(self.approved)
        return done({"approved_by": approval.approved_by, "key": ctx.key, "run": ctx.id})


async def wait() -> None:
    """Starts the order, unless it waits already, and runs it."""
    async with Abide() as abide, Worker(abide, machines=[OrderApproval]):
        order = await abide.start(OrderApproval, key="order-123", or_existing=True)
        print("order-123 waits for its approval", flush=True)
        print(await abide.result(order))


async def approve(name: str) -> None:
    """Signals it, by its key, from wherever this runs: the contract holds here too."""
    async with Abide() as abide:
        receipt = await abide.signal("order-123", "approved-by", Approval(name))
        print(f"{receipt.outcome}, command {receipt.command_id}")


match sys.argv[1:]:
    case []:
        asyncio.run(wait())
    case ["approve", name]:
        asyncio.run(approve(name))
    case _:
        sys.exit("say nothing, or: approve NAME")
