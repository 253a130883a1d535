"""A server that asks for tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
from crash_worker import EXPECTED, Four
from servers import Server

from abide import Abide, SyncAbide, Unauthorized, Worker


async def test_each_does_what_its_token_allows(own_server: Server) -> None:
    operate, send, work = (own_server.token(role) for role in ("operate", "send", "work"))
    async with (
        Abide(own_server.url, operate) as operator,
        Abide(own_server.url, send) as sender,
        Worker(own_server.url, machines=[Four], token=work),
    ):
        order = await operator.start(Four, [])
        await sender.signal(order, Four.go, "go!")
        assert await operator.result(order, wait=30) == EXPECTED
        with pytest.raises(Unauthorized, match="operate"):
            await sender.start(Four, [])


async def test_a_token_that_is_missing_or_wrong_is_told(own_server: Server) -> None:
    own_server.token("operate")
    for token in (None, "abide_wrong"):
        async with Abide(own_server.url, token) as abide:
            with pytest.raises(Unauthorized, match="token"):
                await abide.get(1)


async def test_a_token_is_read_from_the_file_that_the_environment_names(
    own_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(own_server.token("operate") + "\n")
    monkeypatch.setenv("ABIDE_TOKEN_FILE", str(file))
    async with Abide(own_server.url) as abide:
        assert [one async for one in abide.list()] == []
    with SyncAbide(own_server.url) as abide_sync:
        assert list(abide_sync.list()) == []
    # A token that is given, or that of ABIDE_TOKEN, goes before it.
    for token in (None, "abide_wrong"):
        monkeypatch.setenv("ABIDE_TOKEN", "" if token else "abide_other")
        async with Abide(own_server.url, token) as abide:
            with pytest.raises(Unauthorized, match="token"):
                await abide.get(1)
    monkeypatch.delenv("ABIDE_TOKEN")
    (tmp_path / "empty").write_text("\n")
    for name, problem in (("absent", "cannot be read"), ("empty", "empty")):
        monkeypatch.setenv("ABIDE_TOKEN_FILE", str(tmp_path / name))
        with pytest.raises(ValueError, match=f"ABIDE_TOKEN_FILE.*{name}.*{problem}"):
            Abide(own_server.url)
