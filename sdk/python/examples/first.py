"""A first machine: stop it in the middle (ctrl-c), run it again, and it goes on where it was.

``abide serve`` in one terminal, ``python examples/first.py`` in another.
"""

import asyncio
from dataclasses import dataclass

from abide import Abide, Context, Machine, Outcome, Worker, done, next_, step


@dataclass
class Order:
    item: str
    paid: int = 0


class Checkout(Machine[Order], name="first-checkout"):
    @step(first=True)
    async def charge(self, ctx: Context[Order]) -> Outcome:
        print(f"instance {ctx.id}: charge")
        ctx.state.paid = 100
        return next_(self.pack)

    @step
    async def pack(self, ctx: Context[Order]) -> Outcome:
        print(f"instance {ctx.id}: pack")
        return next_(self.ship, delay=2)

    @step
    async def ship(self, ctx: Context[Order]) -> Outcome:
        print(f"instance {ctx.id}: ship")
        return done(f"{ctx.state.item} shipped, {ctx.state.paid} paid")


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[Checkout], name="first"):
        order = await abide.start(Checkout, Order("kettle"), key="first:42", or_existing=True)
        if not order.is_new:
            print(f"instance {order.id}: still there, going on")
        print(f"instance {order.id}: {await abide.result(order)}")


asyncio.run(main())
