"""Updates, handles and states by their types: what is wrong is said before anything is sent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from abide import (
    Abide,
    Call,
    Context,
    Handle,
    Machine,
    NotDone,
    NotJson,
    Outcome,
    Reply,
    Signal,
    Start,
    Worker,
    done,
    job,
    next_,
    step,
    update,
)

Unique = Callable[[str], str]


@dataclass
class Item:
    name: str
    count: int = 1


@dataclass
class Cart:
    owner: str
    items: list[Item] = field(default_factory=list)


class Shop(Machine[Cart], name="typed-shop"):
    order = Signal("order", None)

    @step
    async def start(self, ctx: Context[Cart]) -> Outcome:
        return ctx.wait_for(self.order, then=self.end)

    @step
    async def end(self, ctx: Context[Cart]) -> Outcome:
        return done(ctx.state)

    @update
    async def add(self, ctx: Context[Cart], item: Item, *more: Item, twice: bool = False) -> Item:
        ctx.state.items += [item, *more] * (2 if twice else 1)
        return ctx.state.items[-1]

    @update("how-many")
    def count(self, ctx: Context[Cart]) -> int:
        return len(ctx.state.items)

    @update
    async def hurry(self, ctx: Context[Cart]) -> Reply[int]:
        return Reply(len(ctx.state.items), then=next_(self.end))


@job("typed-largest")
async def largest(items: list[Item]) -> Item:
    return max(items, key=lambda item: item.count)


async def test_an_update_is_named_by_its_method(abide: Abide) -> None:
    async with Worker(abide, machines=[Shop]):
        cart = await abide.start(Shop, Cart("Ada"))
        added: Item = await abide.update(cart, Shop.add, Item("kettle"), Item("cup", 2))
        assert added == Item("cup", 2)
        assert await cart.update(Shop.add, item=Item("lid"), twice=True) == Item("lid")
        call = Call(Shop.add, Item("spoon"))
        for _ in range(2):
            assert await cart.update(call, request_id="once", wait=10) == Item("spoon")
        assert await cart.update(Shop.count) == 5
        record = await cart.send_update(Shop.add, Item("late"))
        assert (await abide.update_record(record.update_id, wait=10)).result == {"name": "late", "count": 1}
        hurried: int = await cart.update(Shop.hurry)
        assert hurried == 6
        assert (await cart.result(Cart, wait=10)).items[-1] == Item("late")


UNTYPED: Any = Call  # what a type checker would say is said when it runs, too


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: UNTYPED(Shop.end), "Shop.end is not an update: mark the method with @update"),
        (lambda: UNTYPED(Shop.add), r"Shop.add: missing a required argument: 'item'; it takes \(item: "),
        (lambda: UNTYPED(Shop.count, 1), "Shop.count: too many positional arguments; it takes"),
        (lambda: UNTYPED(Shop.add, Item("a"), colour=1), "Shop.add: got an unexpected keyword argument 'colour'"),
    ],
)
def test_a_call_that_does_not_fit_is_said_before_it_is_sent(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()


async def test_arguments_by_name_are_a_list_or_a_dict(abide: Abide) -> None:
    with pytest.raises(NotJson, match=r"write \['kettle'\]"):
        await abide.update(1, "add", "kettle")


async def test_a_handle_does_what_the_client_does(abide: Abide, unique: Unique) -> None:
    key = unique("cart")
    async with Worker(abide, machines=[Shop]):
        first = await abide.start(Shop, Cart("Ada"), key=key)
        by_key = abide.handle(key)
        assert (first.key, first.run, first.is_new, repr(by_key)) == (key, 1, True, f"Handle({key!r})")
        assert (await by_key.get()).id == first.id == abide.handle(first).id
        with pytest.raises(ValueError, match="only the key"):
            _ = by_key.id
        assert (await by_key.signal(Shop.order)).instance_id == first.id
        assert await by_key.result(wait=10) == {"owner": "Ada", "items": []}
        assert (await first.ended()).over
        assert [one.name async for one in by_key.signals()] == ["order"]
        assert "started" in [one.kind async for one in first.history()]
        assert [one async for one in first.updates()] == []
        assert [one async for one in first.children()] == []
        assert [one.id async for one in first.runs()] == [first.id]
        other = await abide.start(Shop, Cart("Bob"))
        await other.cancel("enough")
        with pytest.raises(NotDone):
            await other.result()
        again: Handle[Any] = await other.restart()
        assert (again.run, again.id == other.id) == (2, False)
        assert await again.repair() is False
        await again.cancel()


async def test_the_handle_of_a_job_knows_its_result(abide: Abide) -> None:
    async with Worker(abide, tasks=[largest]):
        run = await abide.start(largest, [Item("cup", 3), Item("lid")])
        found: Item = await run.result(wait=10)
        assert found == Item("cup", 3) == await abide.result(run)


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError("n is negative")


class Strict(Machine[Positive], name="typed-strict", version=2):
    @step
    async def start(self, ctx: Context[Positive]) -> Outcome:
        return done(ctx.state.n)


@pytest.mark.parametrize(
    ("what", "state", "said"),
    [
        (Shop, {"owner": 5}, "Shop cannot be started with this: expected a text at owner, got 5"),
        (Shop, {"owner": "a", "items": [{"name": "b", "count": "c"}]}, r"expected an int at items\[0\]\.count"),
        (Shop, None, r"expected an object \(Cart\), got null"),
        (Shop, Item("kettle"), "Cart needs owner"),
        (Strict, {"n": -1}, "Strict cannot be started with this: ValueError: n is negative"),
        (largest, ["cup"], r"largest cannot be started with this: expected an object \(Item\) at \[0\]"),
    ],
)
async def test_a_state_that_does_not_fit_is_not_sent(abide: Abide, what: Any, state: Any, said: str) -> None:
    with pytest.raises(NotJson, match=said):
        await abide.start(what, state)
    with pytest.raises(NotJson, match=said):
        await abide.start_all([Start(what, state)])
    with pytest.raises(NotJson, match=said):
        await abide.signal_with_start(Start(what, state, key="never"), "order")


async def test_the_state_of_another_version_is_not_known_here(abide: Abide) -> None:
    old: Any = {"m": 1}
    assert (await abide.start(Strict, old, version=1)).is_new


PROGRAM = """
from abide import Abide, Call, SyncAbide
from test_typed import Cart, Item, Shop, largest

async def good(abide: Abide, sync: SyncAbide) -> None:
    cart = await abide.start(Shop, Cart("Ada"), key="a", or_existing=True)
    item: Item = await abide.update(cart, Shop.add, Item("cup"), twice=True)
    item = await cart.update(Call(Shop.add, Item("cup")), wait=1)
    item = await (await abide.start(largest, [item])).result()
    item = sync.start(largest, [item]).result()
    number: int = sync.update("cart:1", Shop.hurry)
    number = sync.update("cart:1", Shop.count)

async def bad(abide: Abide, sync: SyncAbide) -> None:
    await abide.start(Shop, {"owner": "Ada"})
    await abide.start(Shop)
    await abide.start(Shop, Cart("Ada"), kee="a")
    await abide.start(largest, ["cup"])
    await abide.update("cart:1", Shop.add, "cup")
    await abide.update("cart:1", Shop.count, 1)
    text: str = await abide.update("cart:1", Shop.count)
    text = sync.start(largest, [Item("cup")]).result()
    await abide.signal("cart:1", Shop.order, 5)
    Call(Shop.add, "cup")
"""


def test_a_type_checker_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    sdk = Path(__file__).resolve().parents[1]
    config = ["--config-file", str(sdk / "pyproject.toml"), "--no-error-summary", "--hide-error-context", "--no-pretty"]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *config, str(tmp_path / "program.py")],
        capture_output=True,
        text=True,
        cwd=sdk,
        env={"MYPYPATH": f"{sdk / 'src'}:{sdk / 'tests'}", "PATH": ""},
    )
    good, bad = PROGRAM.split("async def bad")
    first = good.count("\n") + 2
    expected = set(range(first, first + bad.strip().count("\n")))
    errors = [line for line in checked.stdout.splitlines() if "program.py:" in line and " error: " in line]
    assert {int(line.split("program.py:")[1].split(":")[0]) for line in errors} == expected, checked.stdout
