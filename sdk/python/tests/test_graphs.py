"""Graphs, which the server advances and whose tasks a worker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from servers import Server

from abide import Abide, Context, Function, Graph, Invalid, NotDone, Retry, Worker, input_, job, output, task

Unique = Callable[[str], str]


@task("create")
async def create(order: dict[str, Any]) -> dict[str, Any]:
    return {"id": order["id"]}


@task("flaky")
async def flaky(order: dict[str, Any], ctx: Context[Any]) -> int:
    if "seen" not in globals():
        globals()["seen"] = ctx.id
        raise OSError("busy")
    return 7


@task("sum")
def add(all: dict[str, Any]) -> list[Any]:
    return [all["payment"], all["flaky"], all["nap"]]


@task("broken")
async def broken(_: Any) -> None:
    raise ValueError("it cannot be done")


TASKS: list[Function[..., Any]] = [create, flaky, add, broken]


async def test_a_graph_runs_over_its_tasks_events_signals_and_times(any_server: Server, unique: Unique) -> None:
    globals().pop("seen", None)
    name, order = unique("graph"), unique("o")
    graph = Graph(name)
    graph.task(create, timeout=10)
    graph.wait_for_event(
        "payment",
        "graph.paid",
        where=[("order", "eq", output("create", "id")), ("currency", "eq", "eur"), ("shop", "eq", input_("shop"))],
        timeout=60,
        lookback=60,
        after="create",
    )
    graph.task(flaky, after="create", retry=Retry(max_attempts=2, delay=0.01))
    graph.sleep("nap", 0.05, after="create")
    graph.wait_for_signal("approval", "approved", timeout=60)
    graph.task(add, after=["payment", "flaky", "nap"])
    graph.task("never", "broken", after="nap", skip_if=("create", "id", "eq", order))
    async with Abide(any_server.url) as abide, Worker(abide, tasks=TASKS):
        kept = await abide.put_graph(graph)
        assert kept.name == name
        assert kept.hash
        run = await abide.start(graph, {"id": order, "shop": "s"}, key=order)
        await abide.publish("graph.paid", {"order": order, "currency": "eur", "shop": "s", "amount": 5})
        await abide.signal(order, "approved", "Taylor")
        result = await abide.result(run, wait=30)
        assert result["sum"][0]["amount"] == 5
        assert result["sum"][1:] == [7, None]
        assert result["approval"] == "Taylor"
        assert result["never"] is None


async def test_a_graph_inside_a_graph(abide: Abide, unique: Unique) -> None:
    inner, outer = Graph(unique("inner")), Graph(unique("outer"))
    inner.task(create)
    outer.graph("both", inner)
    async with Worker(abide, tasks=TASKS):
        await abide.put_graph(inner)
        await abide.put_graph(outer)
        run = await abide.start(outer, {"id": 3})
        assert await abide.result(run, wait=30) == {"both": {"create": {"id": 3}}}


async def test_a_task_that_fails_for_good_fails_the_run(abide: Abide, unique: Unique) -> None:
    name = unique("fails")
    async with Worker(abide, tasks=TASKS):
        await abide.put_graph(name, [{"name": "broken", "task": "broken"}])
        run = await abide.start(Graph(name))
        with pytest.raises(NotDone, match="it cannot be done"):
            await abide.result(run, wait=30)


async def test_a_task_that_is_tried_again_is_the_same_instance(any_server: Server, unique: Unique) -> None:
    seen: list[tuple[int, int, str]] = []

    @task(unique("twice"))
    async def twice(_: Any, ctx: Context[Any]) -> int:
        seen.append((ctx.id, ctx.attempt, ctx.token))
        if ctx.attempt == 0:
            raise OSError("busy")
        return ctx.attempt

    graph = Graph(unique("twice"))
    graph.task("a", twice, retry=Retry(max_attempts=2, delay=0.01), timeout=30, schedule_timeout=60)
    async with Abide(any_server.url) as abide, Worker(abide, tasks=[twice]):
        await abide.put_graph(graph)
        run = await abide.start(graph)
        assert await abide.result(run, wait=30) == {"a": 1}
    (first, second) = seen
    assert (first[0], first[2]) == (second[0], second[2])
    assert (first[1], second[1]) == (0, 1)


async def test_a_schedule_timeout_bounds_a_task_that_no_worker_takes(abide: Abide, unique: Unique) -> None:
    graph = Graph(unique("late"))
    graph.task("a", unique("nobodys"), schedule_timeout=0.1)
    await abide.put_graph(graph)
    run = await abide.start(graph)
    with pytest.raises(NotDone, match="did not end within 100 ms: it was waiting in queue"):
        await abide.result(run, wait=30)


async def test_an_instance_is_started_with_a_policy_of_its_own(abide: Abide, unique: Unique) -> None:
    attempts: list[int] = []

    @job(unique("policy"))
    async def fails(_: Any, ctx: Context[Any]) -> None:
        attempts.append(ctx.attempt)
        raise OSError("busy")

    async with Worker(abide, tasks=[fails]):
        started = await abide.start(fails, None, retry=Retry(max_attempts=3, delay=0.01), step_timeout=30)
        with pytest.raises(NotDone, match="busy"):
            await abide.result(started, wait=30)
        assert attempts == [0, 1, 2]
        policy = (await abide.get(started)).policy
        assert policy is not None
        assert policy["step_timeout_ms"] == 30_000
        assert policy["retry"]["max_attempts"] == 3


async def test_all_that_is_wrong_with_a_graph_is_told_at_once(abide: Abide, unique: Unique) -> None:
    graph = Graph(unique("wrong"))
    graph.task("a", after="nobody")
    graph.task("b", after="c").task("c", after="b")
    with pytest.raises(Invalid) as wrong:
        await abide.put_graph(graph)
    assert len(wrong.value.problems) >= 2
    assert "nobody" in str(wrong.value)
    with pytest.raises(Invalid):
        await abide.start(Graph(unique("unknown")))


async def test_many_runs_at_once(abide: Abide, unique: Unique) -> None:
    graph = Graph(unique("many"))
    graph.task("first", create).task("second", create, after="first")
    async with Worker(abide, tasks=TASKS):
        await abide.put_graph(graph)
        runs = [await abide.start(graph, {"id": n}) for n in range(20)]
        results = await asyncio.gather(*(abide.result(run, wait=30) for run in runs))
        assert [result["second"]["id"] for result in results] == list(range(20))
