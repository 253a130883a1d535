"""Writes ``src/abide/sync.py``: the clients for code that is not async, a thin layer over the async ones.

    python make_sync.py            writes it
    python make_sync.py --check    ends with 1 when it is not what it would write

Every public method of ``Abide`` and ``Handle`` becomes one of the same name, parameters and documentation that runs the
async method to its end, in the thread that calls. There is one source of what a method does: the async one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "src" / "abide"
TARGET = SOURCE / "sync.py"

HEAD = '''"""The client for code that is not async: Django, Flask, scripts, steps that run in threads.

Written by ``make_sync.py`` out of ``client.py`` and ``handle.py``: change those, and run it.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from ._codec import Duration
from ._transport import UNSET, Transport
from ._wire import completed, iterated
from .call import Call
from .client import Abide, StartOptions, Target, connected
from .contract import Signal
from .function import Function
from .graph import Graph
from .handle import Handle, Located
from .machine import Machine, Reply, Retry
from .models import (
    Change,
    End,
    EventRecord,
    GraphKept,
    HistoryEvent,
    Instance,
    Published,
    Receipt,
    SignalRecord,
    StartedOne,
    UpdateRecord,
    Waiter,
)
from .outcome import Scope, Start, StepRef

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from typing_extensions import Unpack

C = TypeVar("C", bound="SyncAbide")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
X = TypeVar("X")

_List = list  # the client has a method of that name


class SyncAbide:
    """``Abide`` for code that is not async: the same methods, without ``await``.

    Threads may share one, and so may processes that are forked after it was made, as Gunicorn and Celery do: make one
    for a program. It needs no event loop; inside of one it would block it, and says so.

    ::

        abide = SyncAbide("http://127.0.0.1:7070")
        order = abide.start(Checkout, Order("kettle"), key="order:42")
        print(order.result())
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        patience: float = 10.0,
        verify: Any = True,
    ) -> None:
        self._abide = Abide._over(
            connected(url, token, timeout=timeout, patience=patience, verify=verify, blocking=True)
        )

    @classmethod
    def _over(cls: type[C], transport: Transport) -> C:
        """One that sends by that transport, which must be one that blocks."""
        made = cls.__new__(cls)
        made._abide = Abide._over(transport)
        return made

    def __enter__(self: C) -> C:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        completed(self._abide.close())

    @property
    def urls(self) -> Sequence[str]:
        """The servers."""
        return self._abide.urls

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            warnings.warn(
                "SyncAbide is called in an event loop and blocks it: use `await` with Abide, or asyncio.to_thread",
                RuntimeWarning,
                stacklevel=3,
            )
        return completed(call)

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        return iterated(items)

'''

HANDLE = '''

class SyncHandle(Located[R]):
    """An instance, and what can be done with it; see ``Handle``."""

    def __init__(self, abide: SyncAbide, handle: Handle[R]) -> None:
        self.__dict__.update(handle.__dict__)
        self.abide = abide
        self._handle = handle

'''

#: What is written by hand above.
BY_HAND = {"close", "sync", "urls"}


def main() -> int:
    made = generated()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text() == made:
            return 0
        print("src/abide/sync.py is not up to date: run python make_sync.py", file=sys.stderr)
        return 1
    TARGET.write_text(made)
    return 0


def generated() -> str:
    """The module, formatted."""
    text = HEAD + methods("client.py", "Abide", "self._abide", "self") + HANDLE
    text += methods("handle.py", "Handle", "self._handle", "self.abide")
    ruff = [sys.executable, "-m", "ruff"]
    for command in ([*ruff, "check", "--quiet", "--fix-only"], [*ruff, "format", "--quiet"]):
        text = subprocess.run(
            [*command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=HERE,
        ).stdout
    return text


def methods(file: str, owner: str, inner: str, client: str) -> str:
    """The public methods of a class, each on what ``inner`` is."""
    module = ast.parse((SOURCE / file).read_text())
    (found,) = (node for node in module.body if isinstance(node, ast.ClassDef) and node.name == owner)
    made = [
        method(node, inner, client)
        for node in found.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name not in BY_HAND
        and not node.name.startswith("_")
    ]
    return "\n\n".join(made) + "\n"


def method(node: ast.FunctionDef | ast.AsyncFunctionDef, inner: str, client: str) -> str:
    answers = ast.unparse(node.returns) if node.returns else "None"
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    lines = [f"@{mark}" for mark in marks]
    lines.append(f"def {node.name}({ast.unparse(node.args)}) -> {blocking(answers)}:")
    if "overload" in marks:
        lines[-1] += " ..."
        return indented(lines)
    doc = ast.get_docstring(node, clean=True)
    if doc:
        lines += ['    """' + doc.replace("\n", "\n    ") + ("\n    " if "\n" in doc else "") + '"""']
    call = f"{inner}.{node.name}({', '.join(passed(node.args))})"
    if answers.startswith("AsyncIterator["):
        lines.append(f"    return {client}._each({call})")
        return indented(lines)
    if isinstance(node, ast.AsyncFunctionDef):
        call = f"{client}._run({call})"
    if answers.startswith("Handle["):
        call = f"SyncHandle({client}, {call})"
    lines.append(f"    {call}" if answers == "None" else f"    return {call}")
    return indented(lines)


def passed(takes: ast.arguments) -> list[str]:
    """The arguments of a method, as they are passed on."""
    given = [each.arg for each in [*takes.posonlyargs, *takes.args][1:]]
    if takes.vararg:
        given.append(f"*{takes.vararg.arg}")
    given += [f"{each.arg}={each.arg}" for each in takes.kwonlyargs]
    if takes.kwarg:
        given.append(f"**{takes.kwarg.arg}")
    return given


def blocking(answers: str) -> str:
    """What a method answers when it does not have to be awaited."""
    return re.sub(r"\bHandle\[", "SyncHandle[", answers.replace("AsyncIterator[", "Iterator["))


def indented(lines: list[str]) -> str:
    return "\n".join("    " + line if line else line for line in "\n".join(lines).split("\n"))


if __name__ == "__main__":
    sys.exit(main())
