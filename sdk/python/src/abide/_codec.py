"""Python values as JSON and back: dataclasses, typed dicts, enums, dates; errors name the place of the problem."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
import types
import typing
import uuid
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, TypeVar, Union

from ._pydantic import is_model, problems

T = TypeVar("T")

#: A duration: seconds, or a timedelta.
Duration = int | float | timedelta


class NotJson(ValueError):
    """A value that cannot be written as JSON, or JSON that does not match a type."""


class Unreadable(NotJson):
    """What a step was given that this code cannot read, or a step that it does not know: another build may."""


def milliseconds(duration: Duration) -> int:
    """A duration as whole milliseconds; one that is more than nothing never becomes nothing."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a duration is a number of seconds from 0 on, not {duration!r}")
    whole = round(seconds * 1000)
    return whole if whole or not seconds else 1


def dumps(value: object) -> bytes:
    """JSON text of a value."""
    try:
        plain = to_json(value)
        return json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("the value is nested too deeply, or contains itself") from None
    except (TypeError, ValueError) as error:
        raise NotJson(f"the value is not JSON: {error}") from error


def to_json(value: Any) -> Any:
    """A value as plain JSON: dicts, lists, texts, numbers, booleans, None."""
    try:
        return _written(value, "")
    except RecursionError:
        raise NotJson("the value is nested too deeply, or contains itself") from None


def _written(value: Any, at: str) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value.value if isinstance(value, enum.Enum) else value
    if isinstance(value, enum.Enum):
        return _written(value.value, at)
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise NotJson(f"{value} is not a JSON number{_place(at)}")
        return value
    if isinstance(value, Mapping):
        return {_key(key, at): _written(item, f"{at}.{key}") for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _written(value._asdict(), at)
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_written(item, f"{at}[{index}]") for index, item in enumerate(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _written(getattr(value, field.name), f"{at}.{field.name}")
            for field in dataclasses.fields(value)
        }
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, Decimal)):
        return str(value)
    if is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)  # as it is read
    known = "dataclasses, dicts, lists, texts, numbers, booleans or None"
    raise NotJson(f"{type(value).__name__} is not JSON{_place(at)}: use {known}")


def _key(key: object, at: str) -> str:
    if isinstance(key, str):
        return key.value if isinstance(key, enum.Enum) else key
    raise NotJson(f"the keys of a JSON object are texts, not {type(key).__name__}{_place(at)}")


def from_json(kind: Any, value: Any, at: str = "") -> Any:
    """JSON as a value of that type. Fields that a dataclass does not have are passed over."""
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return value
    if kind is None or kind is type(None):
        if value is None:
            return None
        raise _unfit("null", value, at)
    origin = typing.get_origin(kind)
    if origin is not None:
        return _generic(kind, origin, value, at)
    if isinstance(kind, type):
        return _plain(kind, value, at)
    if hasattr(kind, "__supertype__"):  # a NewType
        return from_json(kind.__supertype__, value, at)
    return value


def _generic(kind: Any, origin: Any, value: Any, at: str) -> Any:
    args = typing.get_args(kind)
    if origin is typing.Annotated or origin in (typing.ClassVar, typing.Final):
        return from_json(args[0], value, at)
    if origin is Union or origin is types.UnionType:
        return _union(args, value, at)
    if origin is Literal:
        if value in args:
            return value
        raise _unfit("one of " + ", ".join(map(repr, args)), value, at)
    if origin in (list, set, frozenset) or (isinstance(origin, type) and origin.__module__ == "collections.abc"):
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return _mapping(args, value, at)
        if not isinstance(value, list):
            raise _unfit("a list", value, at)
        items = [from_json(args[0], item, f"{at}[{index}]") for index, item in enumerate(value)]
        return origin(items) if origin in (set, frozenset) else items
    if origin is tuple:
        if not isinstance(value, list):
            raise _unfit("a list", value, at)
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(from_json(args[0], item, f"{at}[{index}]") for index, item in enumerate(value))
        if len(args) != len(value):
            raise _unfit(f"a list of {len(args)}", value, at)
        return tuple(from_json(arg, item, f"{at}[{i}]") for i, (arg, item) in enumerate(zip(args, value, strict=True)))
    if origin is dict:
        return _mapping(args, value, at)
    if isinstance(origin, type):
        return _plain(origin, value, at)
    return value  # Required and NotRequired of typed dicts, and what is newer than this code


def is_typeddict(kind: object) -> bool:
    """Whether it is a typed dict, of ``typing`` or of ``typing_extensions``."""
    return typing.is_typeddict(kind) or type(kind).__name__ == "_TypedDictMeta"


def _mapping(args: tuple[Any, ...], value: Any, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _unfit("an object", value, at)
    return {key: from_json(args[1], item, f"{at}.{key}") for key, item in value.items()}


def _union(args: tuple[Any, ...], value: Any, at: str) -> Any:
    if value is None and type(None) in args:
        return None
    problem: NotJson | None = None
    for arg in sorted(args, key=lambda arg: arg is not type(value)):  # the very type first: True is no int
        try:
            return from_json(arg, value, at)
        except NotJson as error:
            problem = problem or error
    if len([arg for arg in args if arg is not type(None)]) == 1 and problem:
        raise problem
    raise _unfit(" or ".join(getattr(arg, "__name__", str(arg)) for arg in args), value, at)


def _plain(kind: type, value: Any, at: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, at)
    if is_typeddict(kind):
        if not isinstance(value, dict):
            raise _unfit(f"an object ({kind.__name__})", value, at)
        hints = _hints(kind)
        missing = sorted(set(getattr(kind, "__required_keys__", ())) - set(value))
        if missing:
            raise NotJson(f"{kind.__name__} needs {', '.join(missing)}{_place(at)}")
        return {key: from_json(hints.get(key, Any), item, f"{at}.{key}") for key, item in value.items()}
    if issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            raise _unfit("one of " + ", ".join(repr(each.value) for each in kind), value, at) from None
    if issubclass(kind, datetime):
        return _text(instant, "a time (RFC 3339)", value, at)
    if kind in (date, time):
        return _text(kind.fromisoformat, f"a {kind.__name__}", value, at)
    if kind is uuid.UUID:
        return _text(uuid.UUID, "a UUID", value, at)
    if kind is Decimal:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)
        return _text(Decimal, "a decimal number", value, at)
    if is_model(kind):
        return _model(kind, value, at)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        if isinstance(value, dict):
            hints = _hints(kind)
            given = {*value, *getattr(kind, "_field_defaults", ())}
            missing = [name for name in kind._fields if name not in given]
            if missing:
                raise NotJson(f"{kind.__name__} needs {', '.join(missing)}{_place(at)}")
            known = {key: item for key, item in value.items() if key in hints}
            return kind(**{key: from_json(hints[key], item, f"{at}.{key}") for key, item in known.items()})
        raise _unfit(f"an object ({kind.__name__})", value, at)
    return _scalar(kind, value, at)


def _scalar(kind: type, value: Any, at: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in (set, frozenset, tuple) and isinstance(value, list):
        return kind(value)
    wanted = _WORDS.get(kind)
    if wanted is None:
        raise NotJson(f"no way is known from JSON to {kind.__name__}{_place(at)}: use a dataclass")
    if isinstance(value, kind) and not (kind is not bool and isinstance(value, bool)):
        return value
    raise _unfit(wanted, value, at)


_WORDS = {
    str: "a text",
    bool: "a boolean",
    int: "an int",
    float: "a number",
    list: "a list",
    tuple: "a list",
    set: "a list",
    frozenset: "a list",
    dict: "an object",
}


def _dataclass(kind: type, value: Any, at: str) -> Any:
    if not isinstance(value, dict):
        raise _unfit(f"an object ({kind.__name__})", value, at)
    hints = _hints(kind)
    given: dict[str, Any] = {}
    later: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            place = given if field.init else later
            place[field.name] = from_json(hints.get(field.name, Any), value[field.name], f"{at}.{field.name}")
        elif field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise NotJson(f"{kind.__name__} needs {field.name}{_place(at)}")
    made = kind(**given)
    for name, item in later.items():
        object.__setattr__(made, name, item)
    return made


def _model(kind: Any, value: Any, at: str) -> Any:
    try:
        return kind.model_validate(value)
    except ValueError as error:
        found = problems(error)
        inside = f" of {at.lstrip('.')}" if at else ""
        raise NotJson(f"{kind.__name__}{inside}: {found or error}") from None


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise NotJson(
            f"the types of {kind.__name__} cannot be read ({error}): define them at the top of a module"
        ) from error


def _text(make: typing.Callable[[str], T], wanted: str, value: Any, at: str) -> T:
    if not isinstance(value, str):
        raise _unfit(wanted, value, at)
    try:
        return make(value)
    except (ValueError, ArithmeticError):
        raise _unfit(wanted, value, at) from None


_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:?\d\d)?$")


def instant(text: str) -> datetime:
    """A time of RFC 3339; what is finer than a microsecond is cut off. One without an offset stays without."""
    found = _INSTANT.match(text)
    if not found:
        raise ValueError(f"{text!r} is not an RFC 3339 time")
    day, clock, fraction, offset = found.groups()
    read = datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0')[:6]:0<6}")
    if offset is None:
        return read
    if offset in "Zz":
        return read.replace(tzinfo=timezone.utc)
    sign = -1 if offset[0] == "-" else 1
    away = timedelta(hours=int(offset[1:3]), minutes=int(offset[-2:]))
    return read.replace(tzinfo=timezone(sign * away))


def _unfit(wanted: str, value: Any, at: str) -> NotJson:
    met = json.dumps(value, ensure_ascii=False)
    met = met if len(met) <= 60 else met[:60] + "…"
    return NotJson(f"expected {wanted}{_place(at)}, got {met}")


def _place(at: str) -> str:
    return f" at {at.lstrip('.')}" if at else ""
