"""Signals and updates as types: what parameters a Python type becomes, and a message read back as that type."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Generic, Literal, TypeVar, Union, overload
from uuid import UUID

from . import _pydantic
from ._codec import NotJson, from_json, is_typeddict, to_json
from ._transport import UNSET
from .models import Message

T = TypeVar("T")

#: A parameter of a contract, as the server takes it.
Parameter = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter with more to it than its type: ``Signal("paid", currency=Param(str, default="eur"))``."""

    type: Any
    default: Any = UNSET
    nullable: bool = False
    variadic: bool = False


class Arguments:
    """The arguments of a message by name: ``ctx.awaited(self.paid).amount``."""

    def __init__(self, **named: Any) -> None:
        self.__dict__.update(named)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the message has no argument {name!r}: it has {', '.join(self.__dict__) or 'none'}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Arguments) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__))

    def __repr__(self) -> str:
        return f"Arguments({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Signal(Generic[T]):
    """A signal that a machine takes.

    ``Signal("paid", Payment)`` is sent with the fields of a dataclass, a pydantic model or a typed dict and read as
    one; ``Signal("paid", int)`` with one value; ``Signal("paid", amount=int)`` with arguments that are named here;
    ``Signal("paid", None)`` with nothing; and ``Signal("paid")`` with anything.
    """

    @overload
    def __init__(self: Signal[Any], name: str, /) -> None: ...
    @overload
    def __init__(self: Signal[None], name: str, kind: None, /) -> None: ...
    @overload
    def __init__(self, name: str, kind: type[T], /) -> None: ...
    @overload
    def __init__(self: Signal[Arguments], name: str, /, **parameters: Any) -> None: ...
    def __init__(self, name: str, kind: Any = UNSET, /, **parameters: Any) -> None:
        if kind is not UNSET and parameters:
            raise TypeError(f"signal {name}: give a type or parameters, not both")
        self.name = name
        self._kind = kind
        self._absent = _may_be_absent(kind)
        self._named = {key: given if isinstance(given, Param) else Param(given) for key, given in parameters.items()}
        self.parameters: list[Parameter] | None
        if parameters:
            self.parameters = [parameter(key, given) for key, given in self._named.items()]
        else:
            self.parameters = None if kind is UNSET else parameters_of(kind)

    def __repr__(self) -> str:
        return f"Signal({self.name!r})"

    def accepts(self) -> dict[str, Any]:
        """Its contract."""
        return {"name": self.name} if self.parameters is None else {"name": self.name, "parameters": self.parameters}

    def arguments(self, payload: Any) -> Any:
        """What is sent with, as arguments; an object that is one value is not taken for arguments by name."""
        plain = to_json(payload)
        by_field = self._named or _has_fields(self._kind)
        return plain if by_field and isinstance(plain, dict) else [plain]

    def read(self, message: Message) -> T:
        """A message as the type of this signal."""
        return typing.cast(T, self._read(message))

    def _read(self, message: Message) -> Any:
        if self.parameters is None:
            return message.payload
        if self._kind is None:
            return None
        values = by_name(message, [each["name"] for each in self.parameters])
        at = f".{self.name}"
        if self._named:
            return Arguments(
                **{name: _argument(given, values.get(name), f"{at}.{name}") for name, given in self._named.items()}
            )
        if _has_fields(self._kind):
            there = {name: each for name, each in values.items() if each is not None or name not in self._absent}
            return from_json(self._kind, there, at)
        return from_json(self._kind, values.get("value"), at)


def _argument(given: Param, value: Any, at: str) -> Any:
    if value is None and given.nullable:
        return None
    kind = types.GenericAlias(list, (given.type,)) if given.variadic else given.type
    return from_json(kind, value, at)


def by_name(message: Message, names: Sequence[str]) -> dict[str, Any]:
    """The arguments of a message by the names of its parameters."""
    given = message.arguments
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, list):
        return dict(zip(names, given, strict=False))
    if len(names) == 1:
        return {names[0]: message.payload}
    return dict(zip(names, message.payload if isinstance(message.payload, list) else [], strict=False))


def parameters_of(kind: Any) -> list[Parameter]:
    """The parameters that a type stands for: its fields, or one called ``value``."""
    if kind is None:
        return []
    if not _has_fields(kind):
        return [parameter("value", Param(kind))]
    return [field.wire() for field in _fields(kind)]


def _has_fields(kind: Any) -> bool:
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or is_typeddict(kind)):
        return True
    return _pydantic.has_fields(kind)


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a type as a parameter; ``absent`` when it may be left out though it may not be null."""

    name: str
    given: Param
    absent: bool = False
    shape: dict[str, Any] | None = None

    def wire(self) -> Parameter:
        made = parameter(self.name, self.given)
        if self.shape is not None:
            made["type"] = self.shape
        if self.absent:
            made["nullable"] = True
        return made


def _fields(kind: Any) -> list[_Field]:
    """The fields of a dataclass, a typed dict or a pydantic model."""
    if _pydantic.has_fields(kind):
        return [_of_model(name, info, shape) for name, info, shape in _pydantic.fields(kind)]
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return [
            _field(each.name, hints[each.name], each.default, each.default_factory) for each in dataclasses.fields(kind)
        ]
    required = getattr(kind, "__required_keys__", frozenset(hints))
    return [_Field(name, Param(hint), absent=name not in required) for name, hint in hints.items()]


def _field(name: str, hint: Any, default: Any, factory: Any, shape: dict[str, Any] | None = None) -> _Field:
    left_out = _Field(name, Param(hint), absent=True, shape=shape)
    try:
        if default is not dataclasses.MISSING:
            return _Field(name, Param(hint, default=to_json(default)), shape=shape)
        if factory is dataclasses.MISSING:
            return _Field(name, Param(hint), shape=shape)
        made = to_json(factory())
        # One that makes something else each time, such as an id or the time, is called when the message is read.
        return _Field(name, Param(hint, default=made), shape=shape) if made == to_json(factory()) else left_out
    except (NotJson, TypeError):  # a factory of pydantic may take what else was given
        return left_out


def _of_model(name: str, info: Any, shape: dict[str, Any]) -> _Field:
    default = dataclasses.MISSING if info.is_required() or info.default_factory else info.default
    factory = info.default_factory or dataclasses.MISSING
    short = not info.metadata and _without_none(info.annotation)[0] in _SHORT
    return _field(name, info.annotation, default, factory, None if short else shape)


def _may_be_absent(kind: Any) -> frozenset[str]:
    """The fields for which a null in a message says that they were left out."""
    if kind is UNSET or not _has_fields(kind):
        return frozenset()
    return frozenset(each.name for each in _fields(kind) if each.absent and not _without_none(each.given.type)[1])


def parameters_of_call(function: Callable[..., Any], skip: int) -> list[Parameter]:
    """The parameters of a function, after the first ones."""
    hints = typing.get_type_hints(function)
    made = []
    for each in _in_order(function, skip):
        if each.kind is inspect.Parameter.VAR_KEYWORD:
            raise TypeError(f"{function.__qualname__} takes **{each.name}: an update's parameters are named one by one")
        default = UNSET if each.default is inspect.Parameter.empty else each.default
        variadic = each.kind is inspect.Parameter.VAR_POSITIONAL
        made.append(parameter(each.name, Param(hints.get(each.name, Any), default=default, variadic=variadic)))
    return made


def _in_order(function: Callable[..., Any], skip: int) -> list[inspect.Parameter]:
    """The parameters in the order of the contract: in that, one that takes many is the last."""
    found = list(inspect.signature(function).parameters.values())[skip:]
    return sorted(found, key=lambda each: each.kind is inspect.Parameter.VAR_POSITIONAL)


def parameter(name: str, given: Param) -> Parameter:
    """A parameter as the server takes it."""
    kind, nullable = _without_none(given.type)
    made: Parameter = {"name": name, "type": _type(kind)}
    if nullable or given.nullable:
        made["nullable"] = True
    if given.default is not UNSET and not (given.default is None and made.get("nullable")):
        made["default"] = to_json(given.default)
    if given.variadic:
        made["variadic"] = True
    return made


def _without_none(kind: Any) -> tuple[Any, bool]:
    if typing.get_origin(kind) in (Union, types.UnionType) and type(None) in typing.get_args(kind):
        rest = tuple(arg for arg in typing.get_args(kind) if arg is not type(None))
        return (rest[0] if len(rest) == 1 else Union[rest]), True  # noqa: UP007
    return kind, False


_SHORT: dict[Any, str] = {
    str: "string",
    int: "int",
    float: "float",
    bool: "bool",
    list: "array",
    tuple: "array",
    set: "array",
    dict: "object",
    datetime: "string",
    date: "string",
    time: "string",
    UUID: "string",
    Decimal: "string",
    Any: "any",
    object: "any",
}

_SCHEMA = {
    "string": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "array": "array",
    "object": "object",
}


def _type(kind: Any) -> Any:
    """A type in the words of a contract: a short form where there is one, else a JSON Schema."""
    if kind in _SHORT:
        return _SHORT[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        each = [_type(arg) for arg in args]
        if all(isinstance(one, str) and one != "any" for one in each):
            return "|".join(dict.fromkeys(each))
        return "any" if "any" in each else {"anyOf": [_schema(arg) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [to_json(each.value) for each in kind]}
    if origin in (list, set, frozenset) or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        item = _schema(args[0])
        return {"type": "array", "items": item} if item else "array"
    if origin is dict:
        value = _schema(args[1])
        return {"type": "object", "additionalProperties": value} if value else "object"
    if _pydantic.is_model(kind):
        return _pydantic.schema(kind)
    if _has_fields(kind):
        return _object(kind)
    return "any"


def _object(kind: Any) -> dict[str, Any]:
    fields = _fields(kind)
    needed = [each.name for each in fields if not {"default", "nullable"} & each.wire().keys()]
    properties = {each.name: _schema(each.given.type) for each in fields}
    return {"type": "object", "properties": properties, "required": needed}


def _schema(kind: Any) -> dict[str, Any]:
    inner, nullable = _without_none(kind)
    form = _type(inner)
    if form == "any":
        return {}
    if isinstance(form, str):
        names = [_SCHEMA[one] for one in form.split("|")]
        form = {"type": names[0] if len(names) == 1 else names}
    return {"anyOf": [form, {"type": "null"}]} if nullable else form


def call_arguments(function: Callable[..., Any], skip: int, given: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments to call a function with, out of those of an update."""
    hints = typing.get_type_hints(function)
    expected = _in_order(function, skip)
    names = [each.name for each in expected]
    values = dict(given) if isinstance(given, Mapping) else dict(zip(names, given or [], strict=False))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for each in expected:
        hint = hints.get(each.name, Any)
        if each.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += from_json(types.GenericAlias(list, (hint,)), values.get(each.name) or [], f".{each.name}")
        elif each.name not in values:
            if each.default is inspect.Parameter.empty:
                raise NotJson(f"the argument {each.name} is missing")
        elif each.kind is inspect.Parameter.KEYWORD_ONLY:
            named[each.name] = from_json(hint, values[each.name], f".{each.name}")
        else:
            positional.append(from_json(hint, values[each.name], f".{each.name}"))
    return positional, named
