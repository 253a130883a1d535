"""Requests in the caller's own transaction, by every driver that ``outbox`` knows, against real databases."""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import pytest
import sqlalchemy
from servers import Server
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from abide import Start, SyncAbide, outbox

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "outbox.py"


def key(name: str) -> str:
    return f"{name}:{secrets.token_hex(6)}"


def until(server: Server, holds: Callable[[SyncAbide], bool]) -> None:
    """Asks the server until something holds."""
    give_up = time.monotonic() + 30
    with SyncAbide(server.url) as abide:
        while not holds(abide):
            assert time.monotonic() < give_up, server.log.read_text()[-2000:]
            time.sleep(0.02)


def is_there(name: str) -> Callable[[SyncAbide], bool]:
    return lambda abide: any(one.key == name for one in abide.list(key_prefix=name))


def has_a_signal(name: str) -> Callable[[SyncAbide], bool]:
    return lambda abide: is_there(name)(abide) and len(list(abide.signals(name))) == 1


def alchemy(url: str, driver: str) -> str:
    return url.replace("postgres://", f"postgresql+{driver}://", 1)


def place(box: Any, name: str) -> None:
    """What every synchronous test asks for: a start, and a signal to what it starts."""
    assert box.start("outbox-shop", {"item": "Kessel 🫖"}, key=name) is None
    assert box.signal(name, "paid", 100, dedup="once") is None
    assert box.publish("placed", {"order": name}, event_id=name) is None


def placed(server: Server, name: str) -> None:
    until(server, is_there(name))
    until(server, has_a_signal(name))
    with SyncAbide(server.url) as abide:
        assert abide.get(name).state == {"item": "Kessel 🫖"}
        assert str(next(iter(abide.signals(name))).source).startswith("outbox")


def test_sqlite3(server: Server) -> None:
    path, name = server.store.removeprefix("sqlite:"), key("sqlite3")
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        with connection:
            place(outbox(connection), name)
        outbox(connection).start("outbox-shop", key=f"{name}:never")
        connection.rollback()
        with connection:
            outbox(connection.cursor()).cancel(name, "sold out")
    placed(server, name)
    until(server, lambda abide: abide.get(name).status == "cancelled")
    with SyncAbide(server.url) as abide:
        assert not is_there(f"{name}:never")(abide)


async def test_aiosqlite(server: Server) -> None:
    name = key("aiosqlite")
    async with aiosqlite.connect(server.store.removeprefix("sqlite:"), timeout=30) as connection:
        await outbox(connection).start("outbox-shop", key=name)
        await connection.commit()
    await asyncio.to_thread(until, server, is_there(name))


def test_psycopg(postgres: str, postgres_server: Server) -> None:
    name = key("psycopg")
    with psycopg.connect(postgres) as connection:
        place(outbox(connection), name)
    with psycopg.connect(postgres) as connection:
        outbox(connection.cursor()).start("outbox-shop", key=f"{name}:cursor")
    with psycopg.connect(postgres) as connection:
        outbox(connection).start("outbox-shop", key=f"{name}:never")
        connection.rollback()
    placed(postgres_server, name)
    until(postgres_server, is_there(f"{name}:cursor"))
    with SyncAbide(postgres_server.url) as abide:
        assert not is_there(f"{name}:never")(abide)


async def test_psycopg_async(postgres: str, postgres_server: Server) -> None:
    name = key("psycopg-async")
    async with await psycopg.AsyncConnection.connect(postgres) as connection:
        await outbox(connection).start("outbox-shop", key=name)
        await outbox(connection.cursor(), notify=False).signal(name, "paid")
    await asyncio.to_thread(until, postgres_server, has_a_signal(name))


async def test_asyncpg(postgres: str, postgres_server: Server) -> None:
    name = key("asyncpg")
    connection = await asyncpg.connect(postgres)
    async with connection.transaction():
        await outbox(connection).start("outbox-shop", key=name)
        await outbox(connection).signal_with_start(Start("outbox-shop", key=name), "paid", 7)
    undone = connection.transaction()
    await undone.start()
    await outbox(connection).start("outbox-shop", key=f"{name}:never")
    await undone.rollback()
    async with asyncpg.create_pool(postgres, min_size=1, max_size=1) as pool, pool.acquire() as pooled:
        await outbox(pooled).start("outbox-shop", key=f"{name}:pooled")
    await connection.close()
    await asyncio.to_thread(until, postgres_server, has_a_signal(name))
    await asyncio.to_thread(until, postgres_server, is_there(f"{name}:pooled"))


@pytest.mark.parametrize("over", ["sqlite", "postgres"])
def test_sqlalchemy(over: str, server: Server, postgres: str, postgres_server: Server) -> None:
    name = key("sqlalchemy")
    taken_by = server if over == "sqlite" else postgres_server
    url = f"sqlite:///{server.store.removeprefix('sqlite:')}" if over == "sqlite" else alchemy(postgres, "psycopg")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        place(outbox(connection), name)
    with Session(engine) as session, session.begin():
        outbox(session).start("outbox-shop", key=f"{name}:session")
    with Session(engine) as session:
        outbox(session).start("outbox-shop", key=f"{name}:never")
        session.rollback()
    engine.dispose()
    placed(taken_by, name)
    until(taken_by, is_there(f"{name}:session"))
    with SyncAbide(taken_by.url) as abide:
        assert not is_there(f"{name}:never")(abide)


async def test_sqlalchemy_async(postgres: str, postgres_server: Server) -> None:
    name = key("sqlalchemy-async")
    engine = create_async_engine(alchemy(postgres, "asyncpg"))
    async with engine.begin() as connection:
        await outbox(connection).start("outbox-shop", key=name)
    async with AsyncSession(engine) as session, session.begin():
        await outbox(session).signal(name, "paid", 1)
    await engine.dispose()
    await asyncio.to_thread(until, postgres_server, has_a_signal(name))


def test_django(server: Server) -> None:
    # A process of its own: Django is set up once in one.
    name = key("django")
    program = """
import sys
from django.conf import settings
shop = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1], "OPTIONS": {"timeout": 30}}
settings.configure(DATABASES={"default": shop})
import django
django.setup()
from django.db import connection, transaction
from abide import outbox
with transaction.atomic():
    outbox(connection).start("outbox-shop", key=sys.argv[2])
"""
    subprocess.run([sys.executable, "-c", program, server.store.removeprefix("sqlite:"), name], check=True, timeout=60)
    until(server, is_there(name))


def test_what_is_no_connection_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="is not a connection that the outbox supports"):
        outbox(object())
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(TypeError, match="or_existing"):
        outbox(connection).start("shop", or_existing=True)


def test_what_is_inserted_is_what_the_http_interface_takes() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table abide_outbox (id integer primary key, request text)")
        box = outbox(connection)
        box.start("shop", {"n": 1}, key="o:1", delay=2, priority=-1)
        box.signal(7, "paid", arguments={"amount": 1}, hold_for=1.5)
        box.cancel("o:1", cascade=False, force=True)
        rows = [json.loads(row[0]) for row in connection.execute("select request from abide_outbox order by id")]
    assert rows == [
        {"start": {"machine": "shop", "state": {"n": 1}, "key": "o:1", "delay_ms": 2000, "priority": -1}},
        {"signal": {"target": "7", "name": "paid", "arguments": {"amount": 1}, "hold_for_ms": 1500}},
        {"cancel": {"target": "o:1", "children": "leave", "force": True}},
    ]


@pytest.mark.parametrize("over", ["sqlite", "postgres"])
def test_the_example(over: str, server: Server, postgres: str, postgres_server: Server) -> None:
    taken_by, url = (server, server.store) if over == "sqlite" else (postgres_server, postgres)
    ran = subprocess.run([sys.executable, str(EXAMPLE), url], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "rolled back: the card was declined" in ran.stdout
    for driver in ["sqlite3"] if over == "sqlite" else ["psycopg", "asyncpg", "sqlalchemy"]:
        assert f"placed by {driver}" in ran.stdout
        until(taken_by, is_there(f"order:{driver}"))
