"""What the guide shows runs as it is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import REPO, Server

import abide

PAGES = [REPO / "sdk" / "python" / "README.md", REPO / "docs" / "python.md"]
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


def test_its_version_is_that_of_the_workspace() -> None:
    for page, pattern in (("Cargo.toml", r'^version = "(.*)"'), ("sdk/python/pyproject.toml", r'^version = "(.*)"')):
        found = re.search(pattern, (REPO / page).read_text(), re.MULTILINE)
        assert found is not None
        assert found[1] == abide.__version__


@pytest.mark.parametrize("block", BLOCKS)
def test_a_program_of_the_guide_runs(server: Server, block: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(block.replace("http://127.0.0.1:7070", server.url))
    env = {**os.environ, "ABIDE_STORE": server.url}
    ran = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_what_the_guide_shows_is_typed(tmp_path: Path) -> None:
    for number, block in enumerate(BLOCKS):
        (tmp_path / f"block_{number}.py").write_text(str(block.values[0]))
    config = REPO / "sdk" / "python" / "pyproject.toml"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(config), str(tmp_path)]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=REPO / "sdk" / "python")
    assert checked.returncode == 0, checked.stdout
