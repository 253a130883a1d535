"""Claims out of an answer that Python does not read as a whole.

Python's reader refuses JSON that is nested too deeply or has numbers that are too long, and anyone who may send a
signal may send such JSON. One such signal must not cost a worker the other claims of the same answer, or its life.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MARK = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)

#: Where the fields of a claim are: ``{"claims": [{…}]}``.
_INSIDE = 3

#: In a claim: why not all of it could be read.
UNREADABLE = "unreadable"


def salvaged(content: bytes) -> list[dict[str, Any]]:
    """The claims of an answer, each with the fields that can be read, and ``unreadable`` when some cannot."""
    claims: list[dict[str, Any]] = []
    depth = begin = 0
    for mark in _MARK.finditer(content):
        sign = mark.group()
        if depth == _INSIDE and sign in (b",", b"}") and claims:
            _add(claims[-1], content[begin : mark.start()])
        if sign in (b"{", b"["):
            depth += 1
            if depth == _INSIDE:
                claims.append({})
        elif sign in (b"}", b"]"):
            depth -= 1
        if depth == _INSIDE and sign in (b"{", b","):
            begin = mark.end()
    return [claim for claim in claims if "claim" in claim]


def _add(claim: dict[str, Any], field: bytes) -> None:
    try:
        claim.update(json.loads(b"{" + field + b"}"))
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        name = field.split(b'"')[1].decode(errors="replace") if field.count(b'"') > 1 else "a field"
        claim.setdefault(UNREADABLE, f"what came with the step in `{name}` cannot be read by Python: {said}")
