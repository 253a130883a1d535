"""The build of a worker's code: by its name what one build cannot run is left to others."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Iterable
from typing import Any


def build_of(code: Iterable[Any]) -> str:
    """The name of a build: the program's, and a hash of the files that its machines and functions are written in.

    Copies of one program are one build, wherever they run. What these files import is not looked at: give a worker
    its ``build`` where that matters, the version of the deployed image, say.
    """
    files = {path for path in (_file(each) for each in code) if path is not None}
    program = os.path.basename(sys.argv[0] or "python") or "python"
    digest = hashlib.sha256()
    try:
        for path in sorted(files, key=os.path.basename):
            with open(path, "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
    except OSError:
        files = set()
    if not files:
        return f"{program[:200]}-{secrets.token_hex(8)}"  # typed in by hand, say: a build of its own
    return f"{program[:200]}-{digest.hexdigest()[:16]}"


def _file(code: Any) -> str | None:
    module = sys.modules.get(getattr(code, "__module__", ""))
    return getattr(module, "__file__", None)
