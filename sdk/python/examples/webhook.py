"""A shop that learns of payments from a webhook: the event is matched by its order, whichever comes first.

The server's own webhooks (``POST /v1/hooks/{source}``, with the signature checked) publish events like this one;
here the client does.

``python examples/webhook.py``
"""

import asyncio
from dataclasses import dataclass

from abide import Abide, Context, Machine, Outcome, Start, Worker, done, step, stop


@dataclass
class Order:
    number: int


class Shop(Machine[Order], name="webhook-shop"):
    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for_event(
            "shop.payment",
            where=[("order", "eq", ctx.state.number), ("amount", "gte", 10)],
            timeout=60,
            lookback=60,
            then=self.ship,
        )

    @step
    async def ship(self, ctx: Context[Order]) -> Outcome:
        if ctx.timed_out:
            return stop("payment never came")
        return done(f"order {ctx.state.number}: {ctx.awaited('shop.payment')['amount']} paid")


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[Shop]):
        await abide.publish("shop.payment", {"order": 1, "amount": 20}, event_id="webhook-1")  # it is early
        orders = await abide.start_all(Start(Shop, Order(number)) for number in (1, 2))
        for _ in range(2):  # the sender tries again, and it is one event
            await abide.publish("shop.payment", {"order": 2, "amount": 30}, event_id="webhook-2")
        for order in orders:
            print(await abide.result(order.id or 0))


asyncio.run(main())
