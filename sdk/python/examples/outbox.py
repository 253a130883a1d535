"""Orders placed in the shop's own transaction: by sqlite3, or by psycopg, asyncpg and SQLAlchemy on PostgreSQL.

    python outbox.py sqlite:shop.db
    python outbox.py postgres://localhost/shop

on a database that `abide serve` has open. Each order is a row of the shop and a request to abide, or neither.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from dataclasses import dataclass

from abide import Context, Machine, Outcome, done, outbox, step


@dataclass
class Order:
    item: str


class Shop(Machine[Order], name="outbox-shop"):
    """Started here, and run by a worker elsewhere."""

    @step(first=True)
    async def place(self, ctx: Context[Order]) -> Outcome:
        return done(f"{ctx.state.item} shipped")


CREATE = "create table if not exists shop_orders (id text primary key)"


def by_sqlite3(path: str) -> None:
    shop = sqlite3.connect(path)
    with shop:
        shop.execute(CREATE)
    try:
        with shop:
            outbox(shop).start(Shop, Order("never"), key="order:never")
            raise RuntimeError("the card was declined")
    except RuntimeError as error:
        print(f"rolled back: {error}")
    with shop:
        shop.execute("insert into shop_orders values ('sqlite3')")
        outbox(shop).start(Shop, Order("kettle"), key="order:sqlite3")
        outbox(shop).signal("order:sqlite3", "paid", 100)
    shop.close()
    print("placed by sqlite3")


def by_psycopg(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as shop:
        shop.execute(CREATE)
    try:
        with psycopg.connect(url) as shop:
            outbox(shop).start(Shop, Order("never"), key="order:never")
            raise RuntimeError("the card was declined")
    except RuntimeError as error:
        print(f"rolled back: {error}")
    with psycopg.connect(url) as shop:
        shop.execute("insert into shop_orders values ('psycopg')")
        outbox(shop).start(Shop, Order("kettle"), key="order:psycopg")
        outbox(shop).signal("order:psycopg", "paid", 100)
    print("placed by psycopg")


async def by_asyncpg(url: str) -> None:
    import asyncpg

    shop = await asyncpg.connect(url)
    async with shop.transaction():
        await shop.execute("insert into shop_orders values ('asyncpg')")
        await outbox(shop).start(Shop, Order("kettle"), key="order:asyncpg")
        await outbox(shop).signal("order:asyncpg", "paid", 100)
    await shop.close()
    print("placed by asyncpg")


def by_sqlalchemy(url: str) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(url.replace("postgres://", "postgresql+psycopg://", 1))
    with Session(engine) as shop, shop.begin():
        shop.execute(text("insert into shop_orders values ('sqlalchemy')"))
        outbox(shop).start(Shop, Order("kettle"), key="order:sqlalchemy")
        outbox(shop).signal("order:sqlalchemy", "paid", 100)
    engine.dispose()
    print("placed by sqlalchemy")


def main() -> None:
    url = sys.argv[1]
    if url.startswith("sqlite:"):
        by_sqlite3(url.removeprefix("sqlite:"))
        return
    by_psycopg(url)
    asyncio.run(by_asyncpg(url))
    by_sqlalchemy(url)


if __name__ == "__main__":
    main()
