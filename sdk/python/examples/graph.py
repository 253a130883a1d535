"""A graph with tasks: the server advances it, this process runs its tasks.

``python examples/graph.py``
"""

import asyncio
from typing import Any

from abide import Abide, Graph, Retry, Worker, output, task


@task("create-order")
async def create_order(order: dict[str, Any]) -> dict[str, Any]:
    return {"id": order["id"]}


@task("reserve-stock")
def reserve_stock(order: dict[str, Any]) -> str:  # not async: it runs in a thread
    return f"shelf 7 for {order['id']}"


@task("fulfill")
async def fulfill(all: dict[str, Any]) -> str:
    return f"{all['payment']['amount']} paid, {all['reserve-stock']}"


graph = Graph("webhook-handler")
graph.task(create_order, timeout=10, retry=Retry(max_attempts=3))
graph.wait_for_event(
    "payment",
    "payment.received",
    after="create-order",
    where=[("order_id", "eq", output("create-order", "id"))],
    timeout=3600,
    lookback=60,
)
graph.task(reserve_stock, after="create-order")  # runs while the payment is waited for
graph.task(fulfill, after=["payment", "reserve-stock"], skip_if=("payment", "timeout", "eq", True))


async def main() -> None:
    async with Abide() as abide, Worker(abide, tasks=[create_order, reserve_stock, fulfill]):
        print(f"graph {(await abide.put_graph(graph)).name} is kept")
        run = await abide.start(graph, {"id": "ord_1"})
        await abide.publish("payment.received", {"order_id": "ord_1", "amount": 99})
        print(await abide.result(run))


asyncio.run(main())
