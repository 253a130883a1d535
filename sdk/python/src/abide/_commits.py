"""Sends outcomes: those that are ready together in one request, again and again until there is an answer."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from ._transport import Backoff, Transport
from ._trouble import Trouble
from .errors import AbideError, Broken, Invalid, Unauthorized, Unavailable

#: How much one request may carry; a single outcome may be more.
BATCH = 200
BATCH_BYTES = 512 * 1024


@dataclass
class _Ready:
    claim: Any
    outcome: bytes
    answer: asyncio.Future[tuple[str, str | None]]

    def wire(self) -> bytes:
        return b'{"claim":' + json.dumps(self.claim).encode() + b',"outcome":' + self.outcome + b"}"


class Commits:
    """The outcomes of one worker on their way."""

    def __init__(self, transport: Transport, worker: str) -> None:
        self._transport = transport
        self._head = b'{"worker":' + json.dumps(worker).encode() + b',"outcomes":['
        self._ready: asyncio.Queue[_Ready] = asyncio.Queue()
        self._held_over: _Ready | None = None
        self._trouble = Trouble(f"worker {worker} cannot commit yet")

    async def commit(self, claim: Any, outcome: bytes) -> tuple[str, str | None]:
        """What became of an outcome: committed, stale or refused, and why."""
        answer: asyncio.Future[tuple[str, str | None]] = asyncio.get_running_loop().create_future()
        self._ready.put_nowait(_Ready(claim, outcome, answer))
        return await answer

    async def run(self) -> None:
        """Sends what is ready, until it is cancelled."""
        while True:
            batch = [self._held_over or await self._ready.get()]
            self._held_over = None
            size = len(batch[0].outcome)
            await asyncio.sleep(0)  # so that outcomes that are ready in this turn of the loop share the request
            while len(batch) < BATCH and not self._ready.empty():
                one = self._ready.get_nowait()
                size += len(one.outcome)
                if size > BATCH_BYTES:
                    self._held_over = one
                    break
                batch.append(one)
            await self._send(batch)

    async def _send(self, batch: list[_Ready]) -> None:
        backoff = Backoff()
        while True:
            content = self._head + b",".join(one.wire() for one in batch) + b"]}"
            try:
                # Sent again it is answered as before: a claim is fenced.
                _, body = await self._transport.call("POST", "/v1/workers/commit", content=content, safe=True)
                self._trouble.over()
                return self._answered(batch, body)
            except Invalid as error:
                if len(batch) == 1:
                    return _settle(batch[0], "refused", str(error))
                for one in batch:  # one of them spoils it for the others
                    await self._send([one])
                return None
            except (Unavailable, Broken, Unauthorized) as error:
                self._trouble.met(error)
            except AbideError as error:
                self._trouble.met(error, logging.ERROR)
            batch = [one for one in batch if not one.answer.done()]
            if not batch:
                return None
            await asyncio.sleep(backoff.pause())

    def _answered(self, batch: list[_Ready], body: Any) -> None:
        results = body.get("results") if isinstance(body, dict) else None
        answers = {json.dumps(one["claim"], sort_keys=True): one for one in results or ()}
        for one in batch:
            answer = answers.get(json.dumps(one.claim, sort_keys=True), {})
            _settle(one, answer.get("status", "stale"), answer.get("error"))


def _settle(one: _Ready, status: str, error: str | None) -> None:
    if not one.answer.done():
        one.answer.set_result((status, error))
