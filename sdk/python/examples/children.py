"""A parent that starts children and goes on when they have ended.

``python examples/children.py``
"""

import asyncio
from dataclasses import dataclass

from abide import Abide, Context, Machine, Outcome, Start, Worker, done, job, step, stop


@dataclass
class Book:
    pages: list[str]


@job("count-words")
async def count_words(page: str) -> int:
    """Counts the words of one page."""
    return len(page.split())


class CountBook(Machine[Book], name="count-book"):
    @step(first=True)
    async def split(self, ctx: Context[Book]) -> Outcome:
        pages = [Start(count_words, page) for page in ctx.state.pages]
        return ctx.spawn(pages, then=self.sum, timeout=30)

    @step
    async def sum(self, ctx: Context[Book]) -> Outcome:
        if ctx.timed_out:
            return stop("not all pages were counted in time")
        return done(sum(page.result for page in ctx.children if page.status == "done"))


async def main() -> None:
    async with Abide() as abide, Worker(abide, machines=[CountBook], tasks=[count_words], queues={"default": 32}):
        book = await abide.start(CountBook, Book([f"page {n} of a book" for n in range(1, 101)]))
        print(f"{await abide.result(book, int)} words")


asyncio.run(main())
