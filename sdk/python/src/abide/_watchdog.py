"""Notices that an event loop stands still, and says where: a step that blocks it holds up all others."""

from __future__ import annotations

import asyncio
import linecache
import logging
import os
import sys
import threading
import time
from types import FrameType

log = logging.getLogger("abide")

#: A loop that has not run for so long is blocked.
BLOCKED = 1.0
#: How often the loop shows that it runs, and how often that is looked at.
TICK = 0.25

_HERE = os.path.dirname(os.path.abspath(__file__))


class Watchdog:
    """Watches the loop that runs, from a thread, until it is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._seen = time.monotonic()
        self._ended = threading.Event()
        self._ticking: asyncio.TimerHandle | None = None
        self._tick()
        self._thread = threading.Thread(target=self._watch, name=f"abide-watchdog-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watches no more; the thread, which sleeps but for a moment, is waited for."""
        self._ended.set()
        if self._ticking is not None:
            self._ticking.cancel()
        self._thread.join(TICK)

    def _tick(self) -> None:
        self._seen = time.monotonic()
        self._ticking = self._loop.call_later(TICK, self._tick)

    def _watch(self) -> None:
        said = False
        looked = time.monotonic()
        while not self._ended.wait(TICK):
            now, before = time.monotonic(), looked
            looked, blocked = now, now - self._seen
            if blocked < BLOCKED:
                said = False
            elif now - before > BLOCKED:
                continue  # this thread stood still as well: the whole process did, and no step is to blame
            elif not said and not self._loop.is_closed():
                said = True  # once for each time
                self._say(blocked)

    def _say(self, blocked: float) -> None:
        log.warning(
            "the event loop of worker %s is blocked for %.1f s%s; while it is, no other step runs: run blocking code "
            "with `await asyncio.to_thread(…)`, or make the step a plain `def`, which runs in a thread",
            self._name,
            blocked,
            _where(sys._current_frames().get(self._thread_id)),
        )


def _where(innermost: FrameType | None) -> str:
    """The line that blocks: the innermost that is neither of Python's own library, of a package, nor of this SDK."""
    frame = innermost
    while frame is not None and not _is_turn(frame) and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or _is_turn(frame):
        frame = innermost
    if frame is None:
        return ""
    path, number = frame.f_code.co_filename, frame.f_lineno
    line = linecache.getline(path, number).strip()
    return f" at {path}:{number} in {frame.f_code.co_name}" + (f": {line}" if line else "")


def _is_turn(frame: FrameType) -> bool:
    """Whether it is where the loop calls what is ready: what is further out runs the loop, and does not block it."""
    return frame.f_code.co_name == "_run" and frame.f_code.co_filename.endswith(os.path.join("asyncio", "events.py"))


def _is_library(path: str) -> bool:
    return path.startswith((_HERE, os.path.dirname(os.__file__), "<frozen")) or "site-packages" in path
