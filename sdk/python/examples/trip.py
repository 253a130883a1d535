"""A trip that is booked as a whole or not at all: several bookings at once, retries, and a saga that undoes them.

``python examples/trip.py``
"""

import asyncio
from dataclasses import dataclass, field

from abide import Abide, Context, Machine, NotDone, Outcome, Retry, Start, Worker, done, job, next_, step, stop


@dataclass
class Trip:
    whereto: str
    booked: list[str] = field(default_factory=list)
    problem: str = ""


@job("book", retry=Retry(max_attempts=3, delay=0.05))
async def book(wanted: tuple[str, str]) -> str:
    what, whereto = wanted
    if (what, whereto) == ("car", "Atlantis"):
        raise LookupError("there are no cars in Atlantis")
    print(f"  booked a {what} to {whereto}")
    return f"{what} to {whereto}"


@job("cancel-booking", retry=Retry(max_attempts=10, delay=0.05))
async def cancel(booking: str) -> None:
    print(f"  cancelled the {booking}")


class BookTrip(Machine[Trip], name="trip"):
    @step(first=True)
    async def flight_and_hotel(self, ctx: Context[Trip]) -> Outcome:
        both = [Start(book, (what, ctx.state.whereto)) for what in ("flight", "hotel")]
        return ctx.spawn(both, then=self.car)

    @step
    async def car(self, ctx: Context[Trip]) -> Outcome:
        if not self.note(ctx):
            return next_(self.undo)
        return ctx.spawn([Start(book, ("car", ctx.state.whereto))], then=self.end)

    @step
    async def end(self, ctx: Context[Trip]) -> Outcome:
        if not self.note(ctx):
            return next_(self.undo)
        return done(", ".join(ctx.state.booked))

    @step
    async def undo(self, ctx: Context[Trip]) -> Outcome:
        return ctx.spawn([Start(cancel, booking) for booking in reversed(ctx.state.booked)], then=self.undone)

    @step
    async def undone(self, ctx: Context[Trip]) -> Outcome:
        return stop(ctx.state.problem)

    def note(self, ctx: Context[Trip]) -> bool:
        """Notes what was booked; whether all of it was."""
        ctx.state.booked += sorted(child.result for child in ctx.children if child.status == "done")
        failed = [child.last_error or child.status for child in ctx.children if child.status != "done"]
        ctx.state.problem = ", ".join(failed)
        return not failed


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[BookTrip], tasks=[book, cancel]):
        for whereto in ("Lisbon", "Atlantis"):
            print(f"{whereto}:")
            trip = await abide.start(BookTrip, Trip(whereto))
            try:
                print(f"  done: {await abide.result(trip)}")
            except NotDone as ended:
                print(f"  not done: {ended.last_error}")


asyncio.run(main())
