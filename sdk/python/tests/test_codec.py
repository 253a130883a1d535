"""Python values as JSON and back, and what contracts types become."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional, TypedDict

import pytest

from abide import Arguments, Message, NotJson, Param, Signal
from abide._codec import dumps, from_json, instant, milliseconds, to_json
from abide.contract import parameters_of, parameters_of_call


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: int


class Size(TypedDict):
    width: int
    unit: str


@dataclass
class Item:
    name: str
    tags: list[str] = field(default_factory=list)


@dataclass
class Everything:
    item: Item
    items: dict[str, Item]
    colour: Colour
    at: datetime
    day: date
    id: uuid.UUID
    price: Decimal
    pair: tuple[int, str]
    numbers: set[int]
    point: Point
    size: Size
    way: Literal["in", "out"]
    either: int | str
    maybe: Item | None = None
    old: Optional[int] = None  # noqa: UP045
    anything: Any = None


EVERYTHING = Everything(
    item=Item("kettle", ["hot"]),
    items={"a": Item("cup")},
    colour=Colour.BLUE,
    at=datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=timezone.utc),
    day=date(2026, 1, 2),
    id=uuid.UUID(int=7),
    price=Decimal("9.99"),
    pair=(1, "x"),
    numbers={1, 2},
    point=Point(1, 2),
    size={"width": 3, "unit": "cm"},
    way="in",
    either="x",
    maybe=Item("lid"),
    anything=[{"x": None}],
)


def test_all_kinds_of_values_come_back_as_they_were() -> None:
    import json

    assert from_json(Everything, json.loads(dumps(EVERYTHING))) == EVERYTHING


def test_what_does_not_fit_is_told_with_its_place() -> None:
    with pytest.raises(NotJson, match=r"expected a text at items\.a\.name, got 5"):
        from_json(Everything, {**to_json(EVERYTHING), "items": {"a": {"name": 5}}})
    with pytest.raises(NotJson, match="Item needs name"):
        from_json(Item, {})
    with pytest.raises(NotJson, match=r"Point needs y at \[0\]"):
        from_json(list[Point], [{"x": 1}])
    with pytest.raises(NotJson, match="expected an int, got true"):
        from_json(int, True)
    with pytest.raises(NotJson, match="'red', 'blue'"):
        from_json(Colour, "green")
    with pytest.raises(NotJson, match="a list of 2"):
        from_json(tuple[int, int], [1])


def test_what_is_no_json_is_told_with_its_place() -> None:
    with pytest.raises(NotJson, match=r"object is not JSON at a\[1\]"):
        dumps({"a": [1, object()]})
    with pytest.raises(NotJson, match=r"nan is not a JSON number at a\.b"):
        dumps({"a": {"b": float("nan")}})
    with pytest.raises(NotJson, match="keys"):
        dumps({1: 2})
    with pytest.raises(NotJson):
        dumps("\ud800")
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(NotJson, match="contains itself"):
        dumps(circle)
    with pytest.raises(NotJson, match="contains itself"):
        to_json(circle)


def test_fields_that_are_not_known_are_passed_over() -> None:
    assert from_json(Item, {"name": "kettle", "colour": "red"}) == Item("kettle")


def test_times_are_read_however_fine_they_are() -> None:
    assert instant("2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    assert instant("2026-01-02T03:04:05.123456789Z").microsecond == 123456
    assert instant("2026-01-02T03:04:05.5+02:00").utcoffset() == timedelta(hours=2)
    with pytest.raises(ValueError, match="is not an RFC 3339 time"):
        instant("yesterday")


def test_durations_are_seconds_or_timedeltas() -> None:
    assert milliseconds(1.5) == 1500
    assert milliseconds(timedelta(minutes=1)) == 60000
    assert milliseconds(0.0001) == 1
    assert milliseconds(0) == 0
    for wrong in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="seconds"):
            milliseconds(wrong)


@dataclass
class Paid:
    amount: int
    currency: str = "eur"
    note: str | None = None


def test_a_dataclass_is_a_contract_as_the_rust_struct_is() -> None:
    written = {
        "name": "paid",
        "parameters": [
            {"name": "amount", "type": "int"},
            {"name": "currency", "type": "string", "default": "eur"},
            {"name": "note", "type": "string", "nullable": True},
        ],
    }
    paid = Signal("paid", Paid)
    assert paid.accepts() == written
    message = Message(1, "signal", "paid", arguments={"amount": 5, "currency": "usd", "note": None})
    assert paid.read(message) == Paid(5, "usd")


def test_signals_are_declared_by_keywords_by_one_type_by_nothing_or_not_at_all() -> None:
    named = Signal("paid", amount=int, currency=Param(str, default="eur"), tags=Param(str, variadic=True))
    assert named.accepts()["parameters"] == [
        {"name": "amount", "type": "int"},
        {"name": "currency", "type": "string", "default": "eur"},
        {"name": "tags", "type": "string", "variadic": True},
    ]
    message = Message(1, "signal", "paid", arguments={"amount": 5, "currency": "eur", "tags": ["a"]})
    assert named.read(message) == Arguments(amount=5, currency="eur", tags=["a"])
    with pytest.raises(AttributeError, match="it has amount, currency, tags"):
        _ = named.read(message).total

    one = Signal("count", int)
    assert one.accepts() == {"name": "count", "parameters": [{"name": "value", "type": "int"}]}
    assert one.read(Message(1, "signal", "count", payload=3, arguments={"value": 3})) == 3
    assert Signal("ping", None).accepts() == {"name": "ping", "parameters": []}
    assert Signal("any").accepts() == {"name": "any"}
    assert Signal("any").read(Message(1, "signal", "any", payload={"x": 1}, arguments=[{"x": 1}])) == {"x": 1}


def test_types_become_short_forms_or_schemas() -> None:
    def shown(kind: Any) -> Any:
        return parameters_of(kind)[0]["type"]

    assert [shown(kind) for kind in (float, bool, list, dict, Any)] == ["float", "bool", "array", "object", "any"]
    assert shown(int | str) == "int|string"
    assert shown(Literal["a", "b"]) == {"enum": ["a", "b"]}
    assert shown(Colour) == {"enum": ["red", "blue"]}
    assert shown(list[int]) == {"type": "array", "items": {"type": "integer"}}
    assert shown(dict[str, float]) == {"type": "object", "additionalProperties": {"type": "number"}}
    assert shown(list[Item]) == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
            "required": ["name"],
        },
    }


def test_an_updates_contract_is_its_signature() -> None:
    def move(self: Any, ctx: Any, city: str, zip_code: int | None = None, *notes: str) -> str:
        return city

    assert parameters_of_call(move, skip=2) == [
        {"name": "city", "type": "string"},
        {"name": "zip_code", "type": "int", "nullable": True},
        {"name": "notes", "type": "string", "variadic": True},
    ]
