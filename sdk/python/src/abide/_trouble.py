"""Logs a trouble that lasts when it begins and when it is over, and not each time that it is met."""

from __future__ import annotations

import logging
import time

log = logging.getLogger("abide")

#: A trouble that goes on is said again after so many seconds.
REMIND = 60.0


class Trouble:
    """One thing that may not work for a while: ``what`` says which."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._since: float | None = None
        self._said = 0.0

    def met(self, error: BaseException, level: int = logging.WARNING) -> None:
        """It does not work now."""
        now = time.monotonic()
        if self._since is None:
            self._since = self._said = now
        elif now - self._said < REMIND:
            level = logging.DEBUG
        else:
            self._said = now
        log.log(level, "%s: %s", self._what, error)

    def over(self) -> None:
        """It works."""
        if self._since is not None:
            log.warning("%s: over, after %.1f s", self._what, time.monotonic() - self._since)
            self._since = None
