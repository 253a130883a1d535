"""Pydantic models, without a dependency on pydantic: what they say of themselves, in the words of a contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: Words of a schema that say nothing about what fits, or refer to what is not there any more.
_LEFT_OUT = frozenset({"$defs", "title", "description", "default", "discriminator", "examples", "deprecated"})
#: Words of a schema whose value is data, and no schema.
_DATA = frozenset({"enum", "const", "required", "pattern", "format"})
#: Patterns that the server does not take: those that look around or back.
_LOOKS = re.compile(r"\(\?[=!<]|\\[1-9]")


def is_model(kind: object) -> bool:
    """Whether it is the class of a pydantic model."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "model_fields")


def has_fields(kind: object) -> bool:
    """Whether it is a model with fields, and not one that wraps a single value (``RootModel``)."""
    return is_model(kind) and not getattr(kind, "__pydantic_root_model__", False)


def fields(kind: Any) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The fields of a model: its name in JSON, what pydantic knows of it, its schema."""
    properties = schema(kind).get("properties", {})
    for (name, shape), info in zip(properties.items(), kind.model_fields.values(), strict=False):
        yield name, info, shape


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a model in one piece, as a part of another can be."""
    made: dict[str, Any] = _inlined(kind.model_json_schema(), {}, ())
    return made


def _inlined(part: Any, defs: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, defs, inside) for each in part]
    if not isinstance(part, dict):
        return part
    defs = part.get("$defs", defs)
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    if name in inside:
        return {}  # it contains itself: from here on anything is taken, and pydantic looks when it is read
    made: dict[str, Any] = {}
    if name in defs:
        made = _inlined(defs[name], defs, (*inside, name))
    for word, said in part.items():
        if word == "$ref" or word in _LEFT_OUT or (word == "pattern" and _LOOKS.search(str(said))):
            continue
        if word == "properties":
            made[word] = {name: _inlined(each, defs, inside) for name, each in said.items()}
        else:
            made[word] = said if word in _DATA else _inlined(said, defs, inside)
    return made


def problems(error: ValueError) -> str | None:
    """What a ``ValidationError`` says, in one line; None for any other error."""
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return None
    return "; ".join(_problem(each) for each in errors(include_url=False, include_context=False))


def _problem(each: Mapping[str, Any]) -> str:
    text = str(each["msg"])
    place = ".".join(str(part) for part in each["loc"])
    at = f" at {place}" if place else ""
    got = "" if each["type"] == "missing" else f", got {each['input']!r:.60}"
    return f"{text[:1].lower()}{text[1:]}{at}{got}"
