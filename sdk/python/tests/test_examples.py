"""The examples run, each against the real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from servers import Server, free_port

from abide import SyncAbide

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
    try:
        said, problems = process.communicate(timeout=120)
    finally:
        process.kill()
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


@contextmanager
def running(server: Server, name: str, *arguments: str) -> Iterator[None]:
    process = run(server, name, *arguments)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        _, problems = process.communicate(timeout=30)
        print(problems, file=sys.stderr)


def worked(server: Server) -> None:
    """Waits for a worker: it declares the machine, and what is started before that takes no updates."""
    give_up = time.monotonic() + 60
    with SyncAbide(server.url) as abide:
        while "-checkout" not in str(abide.workers()):
            assert time.monotonic() < give_up, "no worker has come"
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("name", "processes"),
    [("fastapi_shop", [["{port}"]]), ("django_shop", [["worker"], ["runserver", "--noreload", "127.0.0.1:{port}"]])],
)
def test_a_shop_over_http_takes_an_order_and_its_payment(
    own_server: Server, name: str, processes: list[list[str]]
) -> None:
    port = free_port()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as http:

        def asked(method: str, path: str, **how: Any) -> httpx.Response:
            give_up = time.monotonic() + 30
            while True:
                try:
                    response: httpx.Response = http.request(method, path, **how)
                    return response
                except httpx.TransportError:
                    assert time.monotonic() < give_up, "it does not listen"
                    time.sleep(0.05)

        with ExitStack() as stack:
            for arguments in processes:
                stack.enter_context(running(own_server, name, *(each.format(port=port) for each in arguments)))
            worked(own_server)
            first = asked("POST", "/orders/42", json={"item": "kettle"})
            assert first.status_code == 201
            assert asked("POST", "/orders/42", json={"item": "kettle"}).json() == first.json()
            assert asked("POST", "/orders/42/notes", params={"text": "fragile"}).json() == {"notes": 1}
            wrong = asked("POST", "/orders/42/payment", json={"amount": "much"})
            assert wrong.status_code in (409, 422)
            assert "amount" in wrong.text
            assert asked("POST", "/orders/42/payment", json={"amount": 100}).status_code == 202
            said = {"receipt": "kettle shipped, 100 paid by card, 1 notes"}
            assert asked("GET", "/orders/42/receipt").json() == said


def test_every_example_is_tried() -> None:
    # Those of the shops and of the outbox have tests of their own.
    shops = {"fastapi_shop", "django_shop", "outbox"}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*SAY, "order_approval"} | shops
