"""Plain jobs: one function each, with a retry policy.

``python examples/jobs.py``
"""

import asyncio
import itertools

from abide import Abide, Retry, Start, Worker, job

calls = itertools.count()


@job("resize", retry=Retry(max_attempts=30, delay=0.005, max_delay=0.1))
async def resize(path: str) -> str:
    if next(calls) % 3 == 0:
        raise ConnectionError("the image service is busy")
    return path.replace(".png", ".small.png")


async def main() -> None:
    async with Abide() as abide, Worker(abide, tasks=[resize], queues={"default": 64}):
        # One by one …
        kettle = await abide.start(resize, "kettle.png")
        print(await abide.result(kettle))

        # … or five hundred in one transaction.
        started = await abide.start_all(Start(resize, f"{n}.png") for n in range(500))
        await asyncio.gather(*(abide.result(one.id or 0) for one in started))
        print(f"500 more, in {next(calls)} calls")


asyncio.run(main())
