"""What any Offload does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from odradek.runtime.ports import Offload
from odradek.runtime.real import ThreadOffload
from odradek.testing.sim import World

Story = Callable[[Offload], Awaitable[Any]]


@pytest.fixture(params=["threads", "simulated"])
def tell(request: pytest.FixtureRequest) -> Iterator[Callable[[Story], Any]]:
    """Runs a story with an Offload of two threads."""
    if request.param == "threads":
        offload = ThreadOffload(2)
        yield lambda story: asyncio.run(_outcome_of(story, offload))
        offload.close()
        return
    with World(1) as world:
        host = world.host("broker")
        host.boot()
        yield lambda story: world.run(lambda: host.spawn(_outcome_of(story, host.life.offload)))


async def _outcome_of(story: Story, offload: Offload) -> Any:
    return await asyncio.wait_for(story(offload), 30)


def test_what_the_work_returns_or_raises_comes_back(tell: Callable[[Story], Any]) -> None:
    async def story(offload: Offload) -> None:
        assert await offload.run(divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await offload.run(divmod, 7, 0)

    tell(story)


def test_more_work_than_threads_waits_its_turn(tell: Callable[[Story], Any]) -> None:
    async def story(offload: Offload) -> None:
        assert await asyncio.gather(*(offload.run(pow, 2, n) for n in range(50))) == [2**n for n in range(50)]

    tell(story)


def test_the_loop_runs_on_meanwhile(tell: Callable[[Story], Any]) -> None:
    async def story(offload: Offload) -> None:
        order: list[str] = []
        work = asyncio.ensure_future(offload.run(order.append, "work"))
        order.append("loop")
        await work
        assert order[0] == "loop"

    tell(story)


def test_work_whose_caller_gave_up_disturbs_no_one(tell: Callable[[Story], Any]) -> None:
    async def story(offload: Offload) -> None:
        task = asyncio.ensure_future(offload.run(sum, range(1000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await offload.run(max, 1, 2) == 2

    tell(story)


def test_submitted_work_tells_its_outcome_on_the_loop(tell: Callable[[Story], Any]) -> None:
    async def story(offload: Offload) -> None:
        ended = asyncio.Event()
        heard: list[tuple[Any, type[BaseException] | None]] = []

        def done(value: Any, error: BaseException | None) -> None:
            assert asyncio.get_running_loop() is loop
            heard.append((value, None if error is None else type(error)))
            if len(heard) == 2:
                ended.set()

        loop = asyncio.get_running_loop()
        offload.submit(done, divmod, 7, 2)
        offload.submit(done, divmod, 7, 0)
        assert heard == []
        await ended.wait()
        assert sorted(heard, key=str) == [((3, 1), None), (None, ZeroDivisionError)]

    tell(story)
