"""The client for code that is not async: the same as the other, in threads, after a fork, without a loop."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from servers import Server

from abide import (
    Abide,
    Call,
    Context,
    Duplicate,
    Handle,
    Machine,
    NotDone,
    NotYet,
    Outcome,
    Rejected,
    Signal,
    Start,
    SyncAbide,
    SyncHandle,
    Unavailable,
    Worker,
    done,
    job,
    step,
    update,
)

Unique = Callable[[str], str]
SDK = Path(__file__).resolve().parents[1]


@dataclass
class Order:
    item: str
    notes: int = 0


class Checkout(Machine[Order], name="sync-checkout"):
    paid = Signal("paid", amount=int)

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, then=self.end)

    @step
    def end(self, ctx: Context[Order]) -> Outcome:
        return done(f"{ctx.state.item}: {ctx.awaited(self.paid).amount}")

    @update
    async def note(self, ctx: Context[Order], text: str) -> int:
        ctx.state.notes += len(text)
        return ctx.state.notes


@job("sync-double")
def double(n: int) -> int:
    return 2 * n


@job("sync-from-a-thread")
def from_a_thread(n: int, ctx: Context[Any]) -> int:
    started = ctx.abide.sync.start(double, n, key=ctx.token, or_existing=True)
    return started.result(wait=30)


class Beside:
    """A worker in a loop of its own, in a thread: the program of the test has none."""

    def __init__(self, url: str) -> None:
        self._up, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(url)))
        self._thread.start()
        assert self._up.wait(20)

    async def _run(self, url: str) -> None:
        async with Worker(url, machines=[Checkout], tasks=[double, from_a_thread]):
            self._up.set()
            await asyncio.to_thread(self._stop.wait)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(30)


@pytest.fixture
def worker(server: Server) -> Iterator[None]:
    running = Beside(server.url)
    yield
    running.end()


@pytest.fixture
def client(server: Server) -> Iterator[SyncAbide]:
    with SyncAbide(server.url) as made:
        yield made


def test_it_is_written_from_the_async_one() -> None:
    checked = subprocess.run([sys.executable, "make_sync.py", "--check"], cwd=SDK, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("blocking", "other"), [(SyncAbide, Abide), (SyncHandle, Handle)])
def test_it_has_every_method_of_the_async_one(blocking: type, other: type) -> None:
    def public(kind: type) -> dict[str, list[str]]:
        found = {name: each for name, each in inspect.getmembers(kind, callable) if not name.startswith("_")}
        return {name: list(inspect.signature(each).parameters) for name, each in found.items()}

    assert public(blocking) == public(other)


@pytest.mark.usefixtures("worker")
def test_an_order_goes_from_start_to_end_without_a_loop(client: SyncAbide, unique: Unique) -> None:
    key = unique("order")
    order = client.start(Checkout, Order("kettle"), key=key)
    with pytest.raises(Duplicate):
        client.start(Checkout, Order("kettle"), key=key)
    assert client.start(Checkout, Order("kettle"), key=key, or_existing=True).id == order.id
    noted: int = client.update(order, Checkout.note, "abc")
    assert noted == 3
    assert order.update(Call(Checkout.note, text="de"), request_id="r") == 5
    assert order.update(Call(Checkout.note, text="de"), request_id="r") == 5
    assert client.handle(key).update("note", ["f"]) == 6
    with pytest.raises(NotYet):
        order.result(wait=0.05)
    with pytest.raises(Rejected):
        order.signal(Checkout.paid, {"amount": "much"})
    assert order.signal(Checkout.paid, {"amount": 100}, dedup="1").outcome == "signal_received"
    assert order.result(wait=30) == "kettle: 100"
    assert client.get(key).status == "done"
    assert next(each.kind for each in order.history()) == "started"
    assert {each.status for each in client.signals(order)} == {"applied", "rejected"}
    assert [each.type for each in client.stream(instance=order.id)][-1] == "end"


@pytest.mark.usefixtures("worker")
def test_a_step_in_a_thread_has_a_client(client: SyncAbide) -> None:
    result: int = client.start(from_a_thread, 21).result(wait=30)
    assert result == 42


@pytest.mark.usefixtures("worker")
def test_threads_share_one(client: SyncAbide) -> None:
    def one(n: int) -> int:
        return client.start(double, n).result(wait=30)

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(one, range(100))) == [2 * n for n in range(100)]


def test_lists_are_followed_and_can_be_left(client: SyncAbide, unique: Unique) -> None:
    machine = unique("m")
    client.start_all([Start(machine, n) for n in range(25)])
    assert sorted(one.state for one in client.list(machine=machine, page=10)) == list(range(25))
    for one in client.list(machine=machine, page=10):
        client.cancel(one, "enough")
        break
    with pytest.raises(NotDone):
        client.result(one)
    stream = client.stream(instance=one.id)
    assert next(stream).type == "started"
    stream.close()  # type: ignore[attr-defined]
    assert client.get(one).status == "cancelled", "the connection of the stream was given back"


def _child(client: SyncAbide, machine: str, answer: Any) -> None:
    answer.put(client.start(machine).id)


def test_a_process_that_was_forked_has_connections_of_its_own(client: SyncAbide, unique: Unique) -> None:
    machine = unique("m")
    before = client.start(machine).id
    forked = multiprocessing.get_context("fork")
    answer = forked.SimpleQueue()
    children = [forked.Process(target=_child, args=(client, machine, answer)) for _ in range(3)]
    for child in children:
        child.start()
    meanwhile = client.start(machine).id
    for child in children:
        child.join(30)
        child.kill()
    assert [child.exitcode for child in children] == [0, 0, 0]
    ids = {before, meanwhile, *(answer.get() for _ in children)}
    assert len(ids) == 5
    assert {one.id for one in client.list(machine=machine)} == ids


def test_it_waits_for_a_server_that_is_away(own_server: Server, unique: Unique) -> None:
    with SyncAbide(own_server.url, patience=30) as client:
        order = client.start(unique("m"))
        own_server.kill()
        timer = threading.Timer(0.5, own_server.start)
        timer.start()
        assert client.get(order).id == order.id
        timer.join()
    with SyncAbide("http://127.0.0.1:9", patience=0.1) as nowhere, pytest.raises(Unavailable, match="abide serve"):
        nowhere.get(1)


async def test_inside_of_a_loop_it_says_that_it_blocks_it(server: Server, unique: Unique) -> None:
    with (
        SyncAbide(server.url) as client,
        pytest.warns(RuntimeWarning, match="blocks it: use `await` with Abide, or asyncio.to_thread"),
    ):
        client.start(unique("m"))
    async with Abide(server.url) as abide:
        assert (await asyncio.to_thread(abide.sync.start, unique("m"))).is_new
