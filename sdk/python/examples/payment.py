"""An order that waits for its payment: a signal with a deadline, and an update that changes it while it waits.

``python examples/payment.py``
"""

import asyncio
from dataclasses import dataclass

from abide import Abide, Context, Machine, Outcome, Rejected, Signal, Worker, done, step, stop, update


@dataclass
class Order:
    item: str
    address: str


class Checkout(Machine[Order], name="payment-checkout"):
    paid = Signal("payment_confirmed", amount=int)

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, timeout=3600, then=self.ship)

    @step
    async def ship(self, ctx: Context[Order]) -> Outcome:
        if ctx.timed_out:
            return stop("payment never came")
        amount = ctx.awaited(self.paid).amount
        return done(f"{ctx.state.item} shipped to {ctx.state.address}, {amount} paid")

    @update
    async def move_to(self, ctx: Context[Order], address: str) -> str:
        old, ctx.state.address = ctx.state.address, address
        return old


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[Checkout]):
        order = await abide.start(Checkout, Order("kettle", "the old house"))

        was = await order.update(Checkout.move_to, "the new house")
        print(f"it was to go to {was}")

        try:
            await order.signal(Checkout.paid)
        except Rejected as refused:
            print(f"refused: {refused.reason}, {dict(refused.validation_errors)}")

        for _ in range(2):
            receipt = await order.signal(Checkout.paid, {"amount": 100}, dedup="evt-7")
            print(f"message {receipt.message_sequence}, sent before: {receipt.duplicate}")
        print(await order.result())
        async for event in order.history():
            print(f"{event.seq:>3} {event.kind}")


asyncio.run(main())
