"""A worker in a process of its own whose steps do not end: says so in a file, and is to be stopped all the same."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from abide import Context, Worker, job


@job("stubborn")
def stubborn(ends: bool, ctx: Context[bool]) -> None:
    """Runs in a thread, for ever unless it looks at whether anybody still waits."""
    said = Path(os.environ["SAID"])
    said.write_text("begun")
    while not (ends and ctx.lost):
        time.sleep(0.01)
    said.write_text("left")


if __name__ == "__main__":
    url, grace = sys.argv[1:]
    asyncio.run(Worker(url, tasks=[stubborn], grace=float(grace)).run())
