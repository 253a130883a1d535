"""Pydantic models as states, signals, updates and inputs: their fields are the parameters."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel
from servers import Server, binary, environment

from abide import Abide, Context, Machine, Message, NotJson, Outcome, Rejected, Signal, Worker, done, step, update
from abide._codec import from_json, to_json
from abide.contract import parameters_of

Unique = Callable[[str], str]


class Payment(BaseModel):
    amount: Annotated[int, Field(gt=0)]
    currency: Literal["eur", "usd"] = "eur"
    by: str | None = None


class Line(BaseModel):
    name: str
    price: Decimal = Decimal("1.5")


class Order(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    title: str
    default: str = "a field that is called as a word of schemas is"
    lines: list[Line] = []
    ship_on: date | None = Field(default=None, alias="shipOn")
    id: uuid.UUID = Field(default_factory=uuid.uuid4)


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Amounts(RootModel[list[int]]):
    pass


class Checkout(Machine[Order], name="pydantic-checkout"):
    paid = Signal("paid", Payment)
    planted = Signal("planted", Tree)
    counted = Signal("counted", Amounts)

    @step
    async def start(self, ctx: Context[Order]) -> Outcome:
        return ctx.wait_for(self.paid, then=self.end)

    @step
    async def end(self, ctx: Context[Order]) -> Outcome:
        return done({"order": ctx.state, "payment": ctx.awaited(self.paid)})

    @update
    async def add(self, ctx: Context[Order], line: Line, tree: Tree | None = None) -> Line:
        ctx.state.lines.append(line)
        return line


def test_the_fields_of_a_model_are_parameters() -> None:
    assert Checkout.paid.accepts()["parameters"] == [
        {"name": "amount", "type": {"type": "integer", "exclusiveMinimum": 0}},
        {"name": "currency", "type": {"type": "string", "enum": ["eur", "usd"]}, "default": "eur"},
        {"name": "by", "type": "string", "nullable": True},
    ]
    title, default, lines, ship_on, id = parameters_of(Order)
    assert title == {"name": "title", "type": "string"}
    assert default == {"name": "default", "type": "string", "default": Order.model_fields["default"].default}
    assert lines["default"] == []
    assert lines["type"]["items"]["properties"]["name"] == {"type": "string"}
    assert ship_on == {"name": "shipOn", "type": "string", "nullable": True}
    assert id == {"name": "id", "type": "string", "nullable": True}, "an id is made for each, and not once for all"
    assert parameters_of(Amounts) == [{"name": "value", "type": {"type": "array", "items": {"type": "integer"}}}]
    assert "$ref" not in str(parameters_of(Tree))


def test_a_message_is_read_as_its_model() -> None:
    message = Message(1, "signal", "paid", arguments={"amount": 5, "currency": "usd", "by": None})
    assert Checkout.paid.read(message) == Payment(amount=5, currency="usd")
    order = Signal("order", Order)
    sent = Order(title="a", shipOn=date(2026, 1, 2))
    assert order.arguments(sent)["shipOn"] == "2026-01-02"
    assert order.read(Message(1, "signal", "order", arguments=order.arguments(sent))) == sent
    absent = {"title": "a", "shipOn": None, "id": None}
    one, other = (order.read(Message(1, "signal", "order", arguments=absent)) for _ in range(2))
    assert one.id != other.id


class Width(TypedDict):
    width: int


class Size(Width, total=False):
    unit: str
    depth: int | None


def test_what_may_be_left_out_of_a_typed_dict_is_not_there_when_it_was() -> None:
    size = Signal("size", Size)
    assert [each.get("nullable") for each in size.accepts()["parameters"]] == [None, True, True]
    read = size.read(Message(1, "signal", "size", arguments={"width": 1, "unit": None, "depth": None}))
    assert read == {"width": 1, "depth": None}


def test_what_does_not_fit_is_said_once_and_in_one_line() -> None:
    with pytest.raises(NotJson) as unfit:
        from_json(Order, {"title": 5, "lines": [{"price": 1}]}, ".state")
    assert str(unfit.value) == (
        "Order of state: input should be a valid string at title, got 5; field required at lines.0.name"
    )
    assert unfit.value.__cause__ is None


def test_a_model_comes_back_as_it_was() -> None:
    tree = Tree(name="a", children=[Tree(name="b")])
    assert from_json(Tree, to_json(tree)) == tree
    assert from_json(Amounts, to_json(Amounts([1, 2]))) == Amounts([1, 2])


async def test_the_command_line_sends_a_model_by_its_fields(
    abide: Abide, server: Server, unique: Unique, tmp_path: Path
) -> None:
    key = unique("order")
    async with Worker(abide, machines=[Checkout]):
        order = await abide.start(Checkout, Order(title="kettle"), key=key)
        added: Line = await order.update(Checkout.add, Line(name="cup"), tree=Tree(name="a", children=[Tree(name="b")]))
        assert added == Line(name="cup")
        with pytest.raises(Rejected) as wrong:
            await order.signal(Checkout.paid, {"amount": 0, "colour": "red"})
        assert set(wrong.value.validation_errors) == {"amount", "colour"}
        command = [str(binary()), "signal", key, "paid", "amount=100", "by=card", "--store", server.url]
        clean = environment(tmp_path)
        sent = await asyncio.to_thread(subprocess.run, command, env=clean, capture_output=True, text=True)
        assert sent.returncode == 0, sent.stderr
        ended = await order.result(wait=10)
        assert ended["payment"] == {"amount": 100, "currency": "eur", "by": "card"}
        assert ended["order"]["lines"] == [{"name": "cup", "price": "1.5"}]


async def test_each_problem_is_said_once(abide: Abide) -> None:
    async with Worker(abide, machines=[Checkout]):
        order = await abide.start(Checkout, Order(title="kettle"))
        with pytest.raises(Rejected) as wrong:
            await order.signal(Checkout.paid, {"currency": "gbp", "colour": "red"})
        for field, problems in wrong.value.validation_errors.items():
            for problem in problems:
                assert str(wrong.value).count(problem.message) >= 1, wrong.value
            assert str(wrong.value).count(f"{field}: ") + str(wrong.value).count(f"{field} ") == 1, wrong.value
        await order.cancel()


async def test_a_state_that_does_not_fit_its_model_is_not_sent(abide: Abide) -> None:
    wrong: Any = {"title": 5}
    with pytest.raises(NotJson, match="Checkout cannot be started with this: Order: input should be a valid string at"):
        await abide.start(Checkout, wrong)
