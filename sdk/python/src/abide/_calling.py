"""Calls a user's functions: coroutines in the loop, others in threads. Every failure is reported as an error."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import inspect
import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from ._codec import Duration, milliseconds
from .outcome import error_text

_numbers = itertools.count(1)
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class StepTimeout(Exception):
    """A step took longer than its machine allows."""


async def call(function: Callable[..., Any], *args: Any, limit: Duration | None = None, **kwargs: Any) -> Any:
    """What it returns. What it raises is an ``Exception``, whatever it was, unless this call is cancelled itself."""
    seconds = None if limit is None else milliseconds(limit) / 1000
    # In a task of its own, to distinguish being cancelled from awaiting something that was cancelled.
    running = asyncio.ensure_future(_called(function, args, kwargs))
    running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # it may not be needed
    try:
        await asyncio.wait([running], timeout=seconds)
    except asyncio.CancelledError:
        running.cancel()
        await asyncio.wait([running])  # it may have something to clean up
        raise
    if not running.done():
        running.cancel()
        raise StepTimeout(f"the step took longer than {seconds:g} s")
    if running.cancelled():
        raise RuntimeError("something that the step waited for was cancelled")
    return running.result()


async def _called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    called = functools.partial(function, *args, **kwargs)
    try:
        made = called() if inspect.iscoroutinefunction(function) else await _in_thread(called)
        return await made if inspect.isawaitable(made) else made
    except (Exception, asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # `sys.exit` in a step ends the step, and not the worker
        raise RuntimeError(f"the step raised {error_text(error)}") from error


def _in_thread(called: Callable[[], Any]) -> asyncio.Future[Any]:
    """Runs it in a daemon thread, so that the process can end without it."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[Any] = loop.create_future()

    def settle(error: BaseException | None, result: Any) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        result = None
        try:
            result = context.run(called)
        except StopIteration as stopped:  # which a future does not take
            error = RuntimeError("the step raised StopIteration")
            error.__cause__ = stopped
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: the result is not needed any more
            loop.call_soon_threadsafe(settle, error, result)

    thread = threading.Thread(target=run, name=f"abide-{next(_numbers)}", daemon=True)
    _threads.add(thread)
    thread.start()
    return answer


async def threads_end(within: float) -> None:
    """Waits a moment for threads whose callers have gone, so that they can see that."""
    give_up = time.monotonic() + within

    def join() -> None:
        for thread in list(_threads):
            thread.join(max(give_up - time.monotonic(), 0))

    await asyncio.to_thread(join)
