"""Orders over HTTP with FastAPI: pydantic models all the way, and the worker in the application's own event loop.

``pip install fastapi uvicorn``, ``abide serve`` in one terminal, ``python examples/fastapi_shop.py`` in another, then::

    curl -X POST localhost:8000/orders/42 -H 'content-type: application/json' -d '{"item": "kettle"}'
    curl -X POST localhost:8000/orders/42/payment -H 'content-type: application/json' -d '{"amount": 100}'
    curl localhost:8000/orders/42/receipt

``abide signal order:42 paid amount=100`` does the same as the second one.
"""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from abide import Abide, Context, Machine, NoTarget, NotYet, Outcome, Rejected, Signal, Worker, done, step, stop, update


class Order(BaseModel):
    item: str
    notes: list[str] = []


class Payment(BaseModel):
    amount: Annotated[int, Field(gt=0)]
    by: str = "card"


class Checkout(Machine[Order], name="fastapi-checkout"):
    paid = Signal("paid", Payment)

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, timeout=3600, then=self.ship)

    @step
    async def ship(self, ctx: Context[Order]) -> Outcome:
        if ctx.timed_out:
            return stop("payment never came")
        payment = ctx.awaited(self.paid)
        return done(f"{ctx.state.item} shipped, {payment.amount} paid by {payment.by}, {len(ctx.state.notes)} notes")

    @update
    async def note(self, ctx: Context[Order], text: str) -> int:
        ctx.state.notes.append(text)
        return len(ctx.state.notes)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Abide() as abide, Worker(abide, machines=[Checkout]):
        app.state.abide = abide
        yield


app = FastAPI(lifespan=lifespan)


def client(request: Request) -> Abide:
    abide: Abide = request.app.state.abide
    return abide


Client = Annotated[Abide, Depends(client)]


@app.post("/orders/{number}", status_code=201)
async def create(number: int, order: Order, abide: Client) -> dict[str, int]:
    started = await abide.start(Checkout, order, key=f"order:{number}", or_existing=True)
    return {"instance": started.id}


@app.post("/orders/{number}/payment", status_code=202)
async def pay(number: int, payment: Payment, abide: Client) -> dict[str, str]:
    receipt = await abide.signal(f"order:{number}", Checkout.paid, payment, dedup="payment")
    return {"outcome": receipt.outcome}


@app.post("/orders/{number}/notes")
async def note(number: int, text: str, abide: Client) -> dict[str, int]:
    return {"notes": await abide.update(f"order:{number}", Checkout.note, text)}


@app.get("/orders/{number}/receipt")
async def receipt(number: int, abide: Client) -> dict[str, str]:
    return {"receipt": await abide.result(f"order:{number}", str, wait=5)}


@app.exception_handler(NoTarget)
@app.exception_handler(NotYet)
@app.exception_handler(Rejected)
async def refused(request: Request, error: Exception) -> JSONResponse:
    status = 404 if isinstance(error, NoTarget) else 202 if isinstance(error, NotYet) else 409
    return JSONResponse({"detail": str(error)}, status_code=status)


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if sys.argv[1:] else 8000, log_level="warning")
