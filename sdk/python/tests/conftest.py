"""What the tests share: servers over SQLite and PostgreSQL, a client, names that are used once."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Postgres, Server, binary

from abide import Abide, Instance

_numbers = itertools.count(1)

# What is set for the command line is none of the tests' business.
for _name in ("ABIDE_STORE", "ABIDE_TOKEN", "ABIDE_TOKEN_FILE"):
    os.environ.pop(_name, None)
os.environ["ABIDE_BIN"] = str(binary())  # for what the test kit starts, here and in the programs of the guide


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The url of a PostgreSQL database."""
    running = Postgres()
    yield running.url
    running.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over SQLite that all tests share which do it no harm."""
    home = tmp_path_factory.mktemp("server")
    running = Server(f"sqlite:{home / 'abide.db'}", home)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of one's own over SQLite, to be killed."""
    running = Server(f"sqlite:{tmp_path / 'abide.db'}", tmp_path)
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server over PostgreSQL."""
    running = Server(postgres, tmp_path_factory.mktemp("postgres-server"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def any_server(request: pytest.FixtureRequest) -> Server:
    """A server over each of the stores."""
    name = "server" if request.param == "sqlite" else "postgres_server"
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture
async def abide(server: Server) -> AsyncIterator[Abide]:
    """A client of the shared server."""
    async with Abide(server.url) as client:
        yield client


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test uses."""
    run = secrets.token_hex(3)
    return lambda name: f"{name}-{run}-{next(_numbers)}"


async def eventually(look: Callable[[], Awaitable[Any]], within: float = 10.0) -> Any:
    """What ``look`` answers as soon as it is true."""
    give_up = time.monotonic() + within
    while not (found := await look()):
        if time.monotonic() > give_up:
            raise AssertionError("it did not come about")
        await asyncio.sleep(0.01)
    return found


async def blocked(abide: Abide, target: int | str) -> Instance | None:
    """The instance, when no build could run it."""
    found = await abide.get(target)
    return found if found.liveness == "blocked" else None


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    """All of them."""
    return [item async for item in items]
