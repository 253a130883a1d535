"""Steps, outcomes, errors and updates: machines that a worker runs, against the real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from conftest import blocked, eventually
from servers import Server

from abide import (
    Abide,
    Context,
    Event,
    Machine,
    NotDone,
    Outcome,
    Param,
    Reply,
    Retry,
    Signal,
    Start,
    StepTimeout,
    UpdateFailed,
    Worker,
    continue_as_new,
    done,
    fail,
    job,
    next_,
    retry,
    step,
    stop,
    update,
)

Unique = Callable[[str], str]


@dataclass
class Order:
    item: str = "kettle"
    address: str = ""
    seen: list[str] = field(default_factory=list)


class Walk(Machine[Order], name="walk"):
    """Every outcome, one after the other."""

    go = Signal("go", how=str)

    @step(first=True)
    async def begin(self, ctx: Context[Order]) -> Outcome:
        ctx.state.seen.append(f"begin {ctx.cause} {ctx.attempt} {ctx.token == f'abide-{ctx.id}-{ctx.step_sequence}'}")
        if ctx.attempt < 2:
            return retry(delay=0.01)
        return next_(self.park, delay=0.01)

    @step
    async def park(self, ctx: Context[Order]) -> Outcome:
        ctx.state.seen.append("park")
        return ctx.wait_for(self.go, Event("walk.event", where={"order": ctx.key}), timeout=30, then="woken up")

    @step(name="woken up")
    def woken(self, ctx: Context[Order]) -> Outcome:  # not async
        assert threading.current_thread() is not threading.main_thread()
        ctx.state.seen.append(f"woken by {ctx.awaited(self.go).how}, {len(ctx.inbox)} in the inbox")
        return ctx.wait_for(then=self.slept, timeout=0.05)

    @step
    async def slept(self, ctx: Context[Order]) -> Outcome:
        ctx.state.seen.append(f"slept {ctx.timed_out}")
        return ctx.spawn([Start(double, n) for n in range(5)], then=self.joined)

    @step
    async def joined(self, ctx: Context[Order]) -> Outcome:
        ctx.state.seen.append(f"children {sorted(child.result for child in ctx.children)}")
        return continue_as_new(self.end)

    @step
    async def end(self, ctx: Context[Order]) -> Outcome:
        return done(ctx.state)


@job("double")
async def double(n: int) -> int:
    return 2 * n


async def test_every_outcome_leads_on_to_the_next_step(any_server: Server, unique: Unique) -> None:
    async with Abide(any_server.url) as abide, Worker(abide, machines=[Walk], tasks=[double]):
        key = unique("walk")
        run = await abide.start(Walk, Order("tea ☕"), key=key)
        await abide.signal(key, Walk.go, {"how": "signal"})
        ended = await abide.result(key, Order, wait=30)
        assert ended == Order(
            "tea ☕",
            seen=[
                "begin start 0 True",
                "begin retry 1 True",
                "begin retry 2 True",
                "park",
                "woken by signal, 1 in the inbox",
                "slept True",
                "children [0, 2, 4, 6, 8]",
            ],
        )
        assert (await abide.get(key)).run == 2
        assert (await abide.get(run)).status == "continued"


class Ends(Machine[str], name="ends"):
    @step
    async def start(self, ctx: Context[str]) -> Outcome:
        return stop("not today") if ctx.state == "stop" else fail("went wrong")


async def test_stop_and_fail_without_a_policy_end_badly(abide: Abide) -> None:
    async with Worker(abide, machines=[Ends]):
        for how, said in (("stop", "not today"), ("fail", "went wrong")):
            run = await abide.start(Ends, how)
            with pytest.raises(NotDone) as ended:
                await abide.result(run, wait=30)
            assert (ended.value.ended, ended.value.last_error) == ("failed", said)


class Flaky(Machine[Any], name="flaky", retry=Retry(max_attempts=3, delay=0.01)):
    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        ctx.state["touched"] = True
        if ctx.attempt < ctx.state["fails"]:
            raise ConnectionError(f"attempt {ctx.attempt}")
        return done(ctx.attempt)


async def test_a_step_that_raises_runs_again_by_the_policy(abide: Abide) -> None:
    async with Worker(abide, machines=[Flaky]):
        good = await abide.start(Flaky, {"fails": 2})
        assert await abide.result(good, wait=30) == 2
        bad = await abide.start(Flaky, {"fails": 3})
        with pytest.raises(NotDone, match="ConnectionError: attempt 2"):
            await abide.result(bad, wait=30)
        assert (await abide.get(bad)).state == {"fails": 3}, "a step that fails leaves the state as it was"


class Handled(Machine[dict[str, Any]], name="handled", step_timeout=0.2):
    """What goes wrong is what the state says; the handler tells what it met."""

    @step
    async def start(self, ctx: Context[dict[str, Any]]) -> Any:
        ctx.state["dirty"] = True
        match ctx.state["how"]:
            case "raise":
                raise ValueError("broken")
            case "slow":
                await asyncio.sleep(30)
            case "none":
                return None
            case "not json":
                return next_(self.end, state={"x": object()})
            case "too large":
                return next_(self.end, state={"x": "x" * 1_100_000})
            case "handler fails":
                raise ValueError("first")
            case "refused twice":
                return next_(self.end, state={"x": "x" * 1_100_000})
        return done()

    @step
    async def end(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return done(ctx.state)

    async def on_error(self, ctx: Context[dict[str, Any]], error: Exception) -> Outcome:
        assert "dirty" not in ctx.state or ctx.step != "start", "the state is as it was before the step"
        if ctx.state["how"] == "handler fails":
            raise KeyError("second")
        if ctx.state["how"] == "refused twice":
            return next_(self.end, state={"x": "y" * 1_100_000})
        return next_(self.end, state={"met": type(error).__name__, "said": str(error)})


@pytest.mark.parametrize(
    ("how", "met", "said"),
    [
        ("raise", "ValueError", "broken"),
        ("slow", StepTimeout.__name__, "longer than 0.2 s"),
        ("none", "TypeError", "step start returned NoneType"),
        ("not json", "NotJson", "object is not JSON at x"),
        ("too large", "Refused", ""),
    ],
)
async def test_what_goes_wrong_goes_to_on_error(abide: Abide, how: str, met: str, said: str) -> None:
    async with Worker(abide, machines=[Handled]):
        run = await abide.start(Handled, {"how": how})
        result = await abide.result(run, wait=30)
        assert result["met"] == met
        assert said in result["said"]


async def test_a_handler_that_fails_ends_it_with_both_messages(abide: Abide) -> None:
    async with Worker(abide, machines=[Handled]):
        run = await abide.start(Handled, {"how": "handler fails"})
        with pytest.raises(NotDone, match="ValueError: first; and its error handler failed: KeyError: 'second'"):
            await abide.result(run, wait=30)


async def test_an_outcome_that_is_refused_twice_stops(abide: Abide) -> None:
    async with Worker(abide, machines=[Handled]):
        run = await abide.start(Handled, {"how": "refused twice"})
        with pytest.raises(NotDone, match="its outcome was refused"):
            await abide.result(run, wait=30)


class Typed(Machine[Order], name="typed"):
    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return done(ctx.state.item)


async def test_a_state_that_does_not_fit_its_type_blocks_and_says_where(abide: Abide) -> None:
    async with Worker(abide, machines=[Typed]):
        run = await abide.start("typed", {"item": 5})
        found = await eventually(lambda: blocked(abide, run.id))
        assert "expected a text at item, got 5" in found.liveness_reason


class Cart(Machine[list[str]], name="cart"):
    order = Signal("order", None)

    @step(first=True)
    async def fill(self, ctx: Context[list[str]]) -> Outcome:
        return ctx.wait_for(self.order, timeout=60, then=self.end)

    @step
    async def end(self, ctx: Context[list[str]]) -> Outcome:
        assert ctx.awaited_all(self.order) == [None] * len(ctx.messages)
        return done({"items": ctx.state, "timed_out": ctx.timed_out, "ordered": len(ctx.messages)})

    @update
    async def add(self, ctx: Context[list[str]], item: str, times: int = 1) -> int:
        ctx.state += [item] * times
        if not item:
            raise ValueError("an item has a name")
        return len(ctx.state)

    @update("hurry")
    def now(self, ctx: Context[list[str]]) -> Reply[str]:
        return Reply("at once", then=next_(self.end))


async def test_an_update_changes_the_state_and_is_answered(any_server: Server) -> None:
    async with Abide(any_server.url) as abide, Worker(abide, machines=[Cart]):
        cart = await abide.start(Cart, [])
        assert await abide.update(cart, "add", ["kettle"]) == 1
        assert await abide.update(cart, "add", {"item": "cup", "times": 2}, request_id="r") == 3
        assert await abide.update(cart, "add", {"item": "cup", "times": 2}, request_id="r") == 3
        with pytest.raises(UpdateFailed, match="ValueError: an item has a name"):
            await abide.update(cart, "add", [""])
        many = await asyncio.gather(*(abide.update(cart, "add", [f"n{n}"]) for n in range(20)))
        assert sorted(many) == list(range(4, 24))
        await abide.signal(cart, Cart.order)
        ended = await abide.result(cart, wait=30)
        assert len(ended["items"]) == 23
        assert (ended["timed_out"], ended["ordered"]) == (False, 1)


async def test_an_update_can_send_the_instance_elsewhere(abide: Abide) -> None:
    async with Worker(abide, machines=[Cart]):
        cart = await abide.start(Cart, ["cup"])
        assert await abide.update(cart, "hurry") == "at once"
        assert await abide.result(cart, wait=30) == {"items": ["cup"], "timed_out": False, "ordered": 0}


class Pack(Machine[Any], name="pack"):
    vote = Signal("vote", who=str)

    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        if len(ctx.messages) < 3:
            return ctx.wait_for(self.vote, then=self.start)
        return done([vote.who for vote in ctx.awaited_all(self.vote)])


async def test_signals_gather_until_all_have_come(abide: Abide) -> None:
    async with Worker(abide, machines=[Pack]):
        run = await abide.start(Pack)
        for who in ("ä", "b", "c"):
            await abide.signal(run, "vote", arguments=[who])
        assert await abide.result(run, wait=30) == ["ä", "b", "c"]


@dataclass
class Paid:
    amount: int
    tags: list[str] = field(default_factory=list)
    by: str | None = None


class Kinds(Machine[Any], name="kinds-of-signals"):
    """A signal of every kind."""

    fields = Signal("fields", Paid)
    mapping = Signal("mapping", dict[str, int])
    number = Signal("number", int)
    named = Signal("named", who=str, when=Param(str, default="now"))
    bare = Signal("bare", None)
    free = Signal("anything")

    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        every = (self.fields, self.mapping, self.number, self.named, self.bare)
        if len(ctx.inbox) < 6:
            return ctx.wait_for(*every, "anything", then=self.start)
        paid: Paid = ctx.awaited(self.fields)
        number: int = ctx.awaited(self.number)
        named = ctx.awaited(self.named)
        got = [paid.amount, paid.tags, paid.by, ctx.awaited(self.mapping), number, named.who, named.when]
        return done([*got, ctx.awaited(self.bare), ctx.awaited(self.free)])


async def test_signals_of_every_kind_are_read_as_they_were_sent(abide: Abide) -> None:
    async with Worker(abide, machines=[Kinds]):
        run = await abide.start(Kinds)
        await abide.signal(run, Kinds.fields, Paid(5, by="ä"))
        await abide.signal(run, Kinds.mapping, {"a": 1})
        await abide.signal(run, Kinds.number, 7)
        await abide.signal(run, Kinds.named, {"who": "me"})
        await abide.signal(run, Kinds.bare)
        await abide.signal(run, Kinds.free, {"x": [1]})
        assert await abide.result(run, wait=30) == [5, [], "ä", {"a": 1}, 7, "me", "now", None, {"x": [1]}]


class Waits(Machine[dict[str, Any]], name="waits-for-events"):
    @step
    async def start(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return ctx.wait_for_event(
            "payment.received",
            where=[("order_id", "eq", ctx.state["order"]), ("amount", "gte", 10)],
            timeout=ctx.state["timeout"],
            lookback=60,
            then=self.end,
        )

    @step
    async def end(self, ctx: Context[dict[str, Any]]) -> Outcome:
        return done("timed out" if ctx.timed_out else ctx.awaited("payment.received")["amount"])


async def test_an_event_is_waited_for_by_what_it_says(any_server: Server, unique: Unique) -> None:
    order, other, early = unique("o"), unique("o"), unique("o")
    async with Abide(any_server.url) as abide, Worker(abide, machines=[Waits]):
        await abide.publish("payment.received", {"order_id": early, "amount": 77})
        assert await abide.result(await abide.start(Waits, {"order": early, "timeout": 60}), wait=30) == 77

        waiting = await abide.start(Waits, {"order": order, "timeout": 60})
        late = await abide.start(Waits, {"order": other, "timeout": 0.1})

        async def parked() -> bool:
            return [wait async for wait in abide.waits(instance=waiting.id)] != []

        await eventually(parked)
        assert (await abide.publish("payment.received", {"order_id": order, "amount": 9})).matched == 0
        assert (await abide.publish("payment.received", {"order_id": order, "amount": 99})).matched == 1
        assert await abide.result(waiting, wait=30) == 99
        assert await abide.result(late, wait=30) == "timed out"


class Family(Machine[Any], name="family"):
    @step
    async def start(self, ctx: Context[Any]) -> Outcome:
        children = [Start(Ends, "stop"), Start(double, 4), Start("nobody-runs-this", None)]
        return ctx.spawn(children, then=self.end, at_least=ctx.state["at_least"], timeout=ctx.state["timeout"])

    @step
    async def end(self, ctx: Context[Any]) -> Outcome:
        return done([ctx.timed_out, *(child.status for child in ctx.children)])


async def test_a_barrier_counts_ends_and_has_a_deadline(abide: Abide) -> None:
    async with Worker(abide, machines=[Family, Ends], tasks=[double]):
        two = await abide.start(Family, {"at_least": 2, "timeout": 60})
        assert await abide.result(two, wait=30) == [False, "failed", "done", "runnable"]
        all_of_them = await abide.start(Family, {"at_least": 3, "timeout": 1.5})
        assert await abide.result(all_of_them, wait=30) == [True, "failed", "done", "runnable"]
        assert len([child async for child in abide.children(two)]) == 3


@job("in-a-thread", retry=Retry(max_attempts=2, delay=0.01), queue="threads", timeout=10)
def in_a_thread(seconds: float, ctx: Context[Any]) -> str:
    if ctx.attempt == 0:
        raise OSError("busy")
    time.sleep(seconds)
    return threading.current_thread().name


async def test_functions_that_are_not_async_run_in_threads_side_by_side(abide: Abide) -> None:
    async with Worker(abide, tasks=[in_a_thread]):
        started = await abide.start_all(Start(in_a_thread, 0.5) for _ in range(8))
        began = time.monotonic()
        names = await asyncio.gather(*(abide.result(one.id or 0, wait=30) for one in started))
        assert len(set(names)) == 8
        assert time.monotonic() - began < 3.5, "one after the other it would be 4"


async def test_a_queue_that_is_not_served_is_told(abide: Abide, caplog: pytest.LogCaptureFixture) -> None:
    async with Worker(abide, tasks=[in_a_thread], queues={"default": 1}):
        assert "in-a-thread is started in the queue threads, which this worker does not serve" in caplog.text


async def test_what_a_job_is_given_must_fit(abide: Abide) -> None:
    async with Worker(abide, tasks=[double]):
        run = await abide.start("double", "two")
        found = await eventually(lambda: blocked(abide, run.id))
        assert "the input of double does not match its type: expected an int" in found.liveness_reason


async def test_an_idle_worker_is_woken_at_once(any_server: Server) -> None:
    async with Abide(any_server.url) as abide, Worker(abide, tasks=[double]):
        assert await abide.result(await abide.start(double, 1), wait=30) == 2
        took = []
        for n in range(10):
            await asyncio.sleep(0.02)
            began = time.monotonic()
            assert await abide.result(await abide.start(double, n), wait=30) == 2 * n
            took.append(time.monotonic() - began)
        assert sorted(took)[2] < 0.25, took


def test_a_machine_that_is_none_is_told_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="no first step"):

        class NoFirst(Machine[Any], name="no-first"):
            @step
            async def end(self, ctx: Context[Any]) -> Outcome:
                return done()

    with pytest.raises(TypeError, match="has no steps"):

        class NoSteps(Machine[Any], name="no-steps"):
            pass

    with pytest.raises(TypeError, match="is not a step"):
        next_(test_a_machine_that_is_none_is_told_where_it_is_written)

    with pytest.raises(TypeError, match="nothing to start"):
        Start(5).wire()

    with pytest.raises(ValueError, match="there twice"):
        Worker("http://127.0.0.1:9", machines=[Walk, Walk])

    with pytest.raises(ValueError, match="something to run"):
        Worker("http://127.0.0.1:9")

    with pytest.raises(ValueError, match="a worker has a queue"):
        Worker("http://127.0.0.1:9", machines=[Walk], queues={})
    with pytest.raises(ValueError, match=r"a lease lasts a second at least .* not 0\.5 s"):
        Worker("http://127.0.0.1:9", machines=[Walk], lease=0.5)
    with pytest.raises(ValueError, match=r"a poll lasts .* a minute at most, not 120 s"):
        Worker("http://127.0.0.1:9", machines=[Walk], poll=120)
