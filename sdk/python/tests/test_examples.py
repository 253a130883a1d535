"""The examples run, each against the real server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Server

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SAY = {
    "approval_ready": ["set to False", "still there: {'ready': False}", "set to True", "{'ready': True}"],
    "children": ["500 words"],
    "errors": ["attempt 0: the bank does not answer", "attempt 2: the card is declined", "not paid, and sorry"],
    "first": ["charge", "pack", "ship", "kettle shipped, 100 paid"],
    "graph": ["{'fulfill': '99 paid, shelf 7 for ord_1'}"],
    "jobs": ["kettle.small.png", "500 more"],
    "payment": ["it was to go to the old house", "sent before: True", "kettle shipped to the new house, 100 paid"],
    "trip": ["done: flight to Lisbon, hotel to Lisbon, car to Lisbon", "cancelled the hotel to Atlantis", "not done:"],
    "webhook": ["order 1: 20 paid", "order 2: 30 paid"],
}


def run(server: Server, name: str, *arguments: str) -> subprocess.Popen[str]:
    env = {**os.environ, "ABIDE_STORE": server.url}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name", sorted(SAY))
def test_an_example_says_what_it_should(server: Server, name: str) -> None:
    process = run(server, name)
    said, problems = process.communicate(timeout=60)
    assert process.returncode == 0, problems
    for text in SAY[name]:
        assert text in said, said


def test_an_approval_comes_from_another_process(server: Server) -> None:
    waiting = run(server, "order_approval")
    assert waiting.stdout is not None
    assert "waits" in waiting.stdout.readline()
    said, problems = run(server, "order_approval", "approve", "Taylor").communicate(timeout=30)
    assert "signal_received" in said, problems
    assert "'approved_by': 'Taylor'" in waiting.communicate(timeout=30)[0]


def test_every_example_is_tried() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAY, "order_approval"}
