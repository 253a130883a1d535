"""Server-sent events out of the lines of a response."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any


async def server_sent(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str | None, str, Any]]:
    """Each event: its id, its type, what it says."""
    id: str | None = None
    kind, data = "message", []  # type: str, list[str]
    async for line in lines:
        if not line:
            if data:
                yield id, kind, _data("\n".join(data))
            kind, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "id":
            id = value
        elif field == "event":
            kind = value
        elif field == "data":
            data.append(value)


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
