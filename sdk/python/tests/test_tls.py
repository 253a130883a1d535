"""A server that speaks TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_worker import EXPECTED, Four
from servers import REPO, Server

from abide import Abide, SyncAbide, Unavailable, Worker

#: A certificate for ``localhost``, its key, and who signed it.
FILES = REPO / "crates" / "postgres" / "tests" / "tls"


@pytest.fixture
def encrypted(tmp_path: Path) -> Iterator[Server]:
    server = Server(f"sqlite:{tmp_path / 'abide.db'}", tmp_path / "home", tls=FILES)
    server.start()
    yield server
    server.stop()


async def test_a_client_and_a_worker_speak_tls(encrypted: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABIDE_TLS_CA", str(FILES / "ca.pem"))
    async with Abide(encrypted.url) as abide, Worker(encrypted.url, machines=[Four]):
        order = await abide.start(Four, [])
        await abide.signal(order, Four.go, "go!")
        assert await abide.result(order, wait=30) == EXPECTED


def test_whom_to_trust_can_be_said_in_the_call(encrypted: Server) -> None:
    trusted = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    with SyncAbide(encrypted.url, verify=trusted) as abide:
        assert list(abide.list()) == []


async def test_a_server_that_nobody_vouches_for_is_not_spoken_to(encrypted: Server) -> None:
    async with Abide(encrypted.url, patience=0) as abide:
        with pytest.raises(Unavailable, match=r"(?i)certificate"):
            await abide.get(1)


def test_a_file_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no certificate")
    for name in ("no.pem", "absent.pem"):
        monkeypatch.setenv("ABIDE_TLS_CA", str(tmp_path / name))
        with pytest.raises(ValueError, match=f"ABIDE_TLS_CA.*{name}"):
            Abide("https://localhost:1")
