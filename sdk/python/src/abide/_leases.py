"""Renews the leases of a worker's claims, from a thread: a step that blocks the event loop must not lose its claim."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ._transport import Transport
from ._trouble import Trouble
from ._wire import completed
from .errors import AbideError


class Leases:
    """Sends heartbeats for what ``held`` answers, and tells ``lost``, on the loop, of what is held no more."""

    def __init__(
        self,
        transport: Transport,
        worker: str,
        lease: float,
        held: Callable[[], Sequence[Any]],
        lost: Callable[[Sequence[Any]], None],
    ) -> None:
        self._transport = transport.another(blocking=True)
        self._worker, self._every = worker, lease / 3
        self._held, self._lost = held, lost
        self._loop = asyncio.get_running_loop()
        self._ended = threading.Event()
        self._trouble = Trouble(f"worker {worker} cannot renew its leases")
        self._thread = threading.Thread(target=self._run, name=f"abide-leases-{worker}", daemon=True)
        self._thread.start()

    def stop(self, within: float) -> None:
        """Renews nothing any more; a request that is under way is waited for, so long at most."""
        self._ended.set()
        self._thread.join(within)

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            claims = self._held()
            if claims:
                self._renew(claims)
        completed(self._transport.close())

    def _renew(self, claims: Sequence[Any]) -> None:
        body = {"worker": self._worker, "claims": list(claims)}
        try:
            _, answer = completed(
                self._transport.call("POST", "/v1/workers/heartbeat", body=body, safe=True, patience=self._every)
            )
        except AbideError as error:
            self._trouble.met(error)
            return
        self._trouble.over()
        lost = answer.get("lost") or ()
        if lost and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._lost, lost)
