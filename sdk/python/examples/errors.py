"""What happens when a step fails: a retry policy for what passes, an error handler for what does not.

``python examples/errors.py``
"""

import asyncio
from typing import Any

from abide import Abide, Context, Machine, Outcome, Retry, Worker, done, fail, next_, step


class Busy(Exception):
    pass


class Declined(Exception):
    pass


def charge(attempt: int) -> None:
    """Stands for a bank: busy twice, and then it declines."""
    if attempt < 2:
        raise Busy("the bank does not answer")
    raise Declined("the card is declined")


class Payment(Machine[Any], name="errors-payment", retry=Retry(max_attempts=5, delay=0.01, max_delay=1)):
    @step(first=True)
    async def charge(self, ctx: Context[Any]) -> Outcome:
        charge(ctx.attempt)  # a real one would be given ctx.token, which is the same when the step is run again
        return done("paid")

    @step
    async def apologise(self, ctx: Context[Any]) -> Outcome:
        return done("not paid, and sorry")

    async def on_error(self, ctx: Context[Any], error: Exception) -> Outcome:
        print(f"attempt {ctx.attempt}: {error}")
        return next_(self.apologise) if isinstance(error, Declined) else fail(error)


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[Payment]):
        payment = await abide.start(Payment)
        print(await abide.result(payment))
        async for event in abide.history(payment):
            print(f"{event.seq:>3} {event.kind}")


asyncio.run(main())
