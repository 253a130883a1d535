"""Requests in your own database transaction: rows of the outbox, which the engine and the server take when you commit.

``outbox(connection)`` takes a connection, cursor or session of ``sqlite3``, ``aiosqlite``, ``psycopg``, ``asyncpg``,
SQLAlchemy or Django. What is asked for is inserted with the rows of your transaction: it is carried out once that
commits, exactly once, and never if it rolls back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from ._codec import Duration, dumps, milliseconds
from ._transport import UNSET
from .client import StartOptions, Target, _called, _event, _message, _shown
from .contract import Signal
from .outcome import Start

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
#: What a call answers: nothing, or what has to be awaited for that.
A = TypeVar("A", covariant=True)

_SQLITE = "insert into abide_outbox (request) values ({})"
_POSTGRES = "insert into abide.outbox (request) values ({})"
_NOTIFY = "select pg_notify('abide_outbox', '')"


class _Run(Protocol[A]):
    def __call__(self, request: str, notify: bool, /) -> A: ...


class Outbox(Generic[A]):
    """Inserts requests into the outbox of a database, within the transaction that is open on a connection.

    With ``notify`` those who take requests on PostgreSQL are woken when the transaction commits; else they look within
    a second. Leave it out where a transaction is prepared for a two-phase commit: PostgreSQL does not allow both.
    """

    def __init__(self, run: _Run[A], *, notify: bool = True) -> None:
        self._run = run
        self._notify = notify

    def _insert(self, kind: str, body: object) -> A:
        return self._run(dumps({kind: body}).decode(), self._notify)

    def start(self, what: Any, state: Any = None, **options: Unpack[StartOptions]) -> A:
        """Starts an instance of a machine, a job or a graph, as ``Abide.start`` does.

        A key that is taken then is a refused request, which an operator sees.
        """
        if options.pop("or_existing", False):
            raise TypeError("or_existing: nothing is answered here; a start whose key is taken is recorded as refused")
        return self._insert("start", Start(what, state, **cast(Any, options)).wire())

    def signal(
        self,
        target: Target,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
        hold_for: Duration | None = None,
    ) -> A:
        """Sends a signal, as ``Abide.signal`` does."""
        body = {"target": _shown(target), "name": _called(name), **_message(name, payload, arguments, dedup)}
        if hold_for is not None:
            body["hold_for_ms"] = milliseconds(hold_for)
        return self._insert("signal", body)

    def signal_with_start(
        self,
        start: Start,
        name: str | Signal[T],
        payload: T | Mapping[str, Any] = UNSET,
        *,
        arguments: Sequence[Any] | Mapping[str, Any] | None = None,
        dedup: str | None = None,
    ) -> A:
        """Sends a signal to the instance of that key, or starts one that has it already, in one commit."""
        body = {"start": start.wire(), "name": _called(name), **_message(name, payload, arguments, dedup)}
        return self._insert("signal_with_start", body)

    def publish(self, type: str, payload: Any = None, *, event_id: str | None = None) -> A:
        """Publishes an event, as ``Abide.publish`` does."""
        return self._insert("publish", _event(type, payload, event_id))

    def cancel(self, target: Target, reason: str = "", *, cascade: bool = True, force: bool = False) -> A:
        """Cancels an instance, as ``Abide.cancel`` does."""
        body: dict[str, Any] = {"target": _shown(target), "children": "cascade" if cascade else "leave"}
        if reason:
            body["reason"] = reason
        if force:
            body["force"] = True
        return self._insert("cancel", body)


@overload
def outbox(connection: sqlite3.Connection | sqlite3.Cursor, *, notify: bool = True) -> Outbox[None]: ...
@overload
def outbox(connection: Any, *, notify: bool = True) -> Outbox[Any]: ...
def outbox(connection: Any, *, notify: bool = True) -> Outbox[Any]:
    """The outbox of the database that a connection leads to, in the connection's transaction.

    What its methods answer is ``None``, or to be awaited where the driver is async::

        with psycopg.connect(url) as connection:
            connection.execute("insert into orders (id) values (42)")
            abide.outbox(connection).start(Checkout, Order("kettle"), key="order:42")

        async with engine.begin() as connection:                     # SQLAlchemy
            await connection.execute(insert(orders).values(id=42))
            await abide.outbox(connection).start(Checkout, Order("kettle"), key="order:42")
    """
    for base in type(connection).__mro__:
        make = _DRIVERS.get(base.__module__.partition(".")[0])
        if make is not None:
            return Outbox(make(connection), notify=notify)
    raise TypeError(
        f"{type(connection).__module__}.{type(connection).__qualname__} is not a connection that the outbox supports; "
        "give one of sqlite3, aiosqlite, psycopg, asyncpg, SQLAlchemy or Django, or insert the request yourself"
    )


def _of_sqlite(connection: Any) -> _Run[None]:
    def run(request: str, _notify: bool) -> None:
        connection.execute(_SQLITE.format("?"), (request,))

    return run


def _of_aiosqlite(connection: Any) -> _Run[Awaitable[None]]:
    async def run(request: str, _notify: bool) -> None:
        await connection.execute(_SQLITE.format("?"), (request,))

    return run


def _of_psycopg(connection: Any) -> _Run[Any]:
    # A connection of psycopg 2 has no `execute`, and a cursor has no other way.
    cursor = connection if hasattr(connection, "execute") else connection.cursor()
    if "Async" not in type(connection).__name__:

        def run(request: str, notify: bool) -> None:
            cursor.execute(_POSTGRES.format("%s"), (request,))
            if notify:
                cursor.execute(_NOTIFY)

        return run

    async def run_async(request: str, notify: bool) -> None:
        await cursor.execute(_POSTGRES.format("%s"), (request,))
        if notify:
            await cursor.execute(_NOTIFY)

    return run_async


def _of_asyncpg(connection: Any) -> _Run[Awaitable[None]]:
    async def run(request: str, notify: bool) -> None:
        await connection.execute(_POSTGRES.format("$1"), request)
        if notify:
            await connection.execute(_NOTIFY)

    return run


def _of_sqlalchemy(connection: Any) -> _Run[Any]:
    import sqlalchemy

    sync = getattr(connection, "sync_session", connection)
    bind = sync.get_bind() if hasattr(sync, "get_bind") else sync
    dialect = str(bind.dialect.name)
    if dialect not in ("postgresql", "sqlite"):
        raise TypeError(f"the outbox is in PostgreSQL and in SQLite, and this is {dialect}")
    insert = sqlalchemy.text((_POSTGRES if dialect == "postgresql" else _SQLITE).format(":request"))
    notification = sqlalchemy.text(_NOTIFY)
    if not type(connection).__module__.startswith("sqlalchemy.ext.asyncio") and sync is connection:

        def run(request: str, notify: bool) -> None:
            connection.execute(insert, {"request": request})
            if notify and dialect == "postgresql":
                connection.execute(notification)

        return run

    async def run_async(request: str, notify: bool) -> None:
        await connection.execute(insert, {"request": request})
        if notify and dialect == "postgresql":
            await connection.execute(notification)

    return run_async


def _of_django(connection: Any) -> _Run[None]:
    if connection.vendor not in ("postgresql", "sqlite"):
        raise TypeError(f"the outbox is in PostgreSQL and in SQLite, and this is {connection.vendor}")
    insert = (_POSTGRES if connection.vendor == "postgresql" else _SQLITE).format("%s")

    def run(request: str, notify: bool) -> None:
        with connection.cursor() as cursor:
            cursor.execute(insert, [request])
            if notify and connection.vendor == "postgresql":
                cursor.execute(_NOTIFY)

    return run


_DRIVERS: dict[str, Callable[[Any], _Run[Any]]] = {
    "sqlite3": _of_sqlite,
    "aiosqlite": _of_aiosqlite,
    "psycopg": _of_psycopg,
    "psycopg2": _of_psycopg,
    "asyncpg": _of_asyncpg,
    "sqlalchemy": _of_sqlalchemy,
    "django": _of_django,
}
