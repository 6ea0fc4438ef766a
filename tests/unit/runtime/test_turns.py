"""Long work shares the loop: in turns, one in each iteration, and short work waits for none of it."""

import asyncio
from collections.abc import Generator
from itertools import pairwise

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.runtime.turns import StartedCoroutine, Turns, in_one_go, slices
from odradek.testing.sim import SimLoop, stream


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_short_work_never_waits() -> None:
    clock = Clock()
    turn = Turns(clock, free_seconds=1.0).begin()
    clock.now = 0.9
    work = turn.step().__await__()
    with pytest.raises(StopIteration):
        next(work)


async def test_long_work_takes_turns_and_short_work_comes_in_between() -> None:
    clock = Clock()
    turns = Turns(clock, free_seconds=1.0, slice_seconds=1.0)
    order: list[str] = []

    async def long(name: str) -> None:
        turn = turns.begin()
        for _ in range(3):
            clock.now += 1.0
            await turn.step()
            order.append(name)

    async def short() -> None:
        for _ in range(8):
            order.append("short")
            await asyncio.sleep(0)

    await asyncio.gather(long("a"), long("b"), short())
    first_long = [name for name in order if name != "short"]
    assert first_long == ["a", "b", "a", "b", "a", "b"]
    together = [pair for pair in pairwise(order) if "short" not in pair]
    assert order.index("short") == 0
    assert len(together) <= 2, order  # after short has ended


async def test_who_gave_up_its_place_does_not_hold_up_those_behind() -> None:
    clock = Clock()
    turns = Turns(clock, free_seconds=0.0)
    gone = turns.queue()
    waiting = turns.queue()
    gone.cancel()
    async with asyncio.timeout(PATIENCE_S):
        await waiting


async def test_it_hears_when_long_work_begins() -> None:
    turns = Turns(Clock(), free_seconds=0.0)
    answers: list[bool] = []
    turns.on_busy = answers.append
    await turns.begin().step()
    await turns.begin().step()
    assert answers == [True]


async def test_a_list_is_made_in_order_and_in_turns() -> None:
    clock = Clock()
    turns = Turns(clock, free_seconds=0.5, slice_seconds=0.5)

    def doubled(number: int) -> int:
        clock.now += 1.0
        return number * 2

    assert await turns.begin().map(doubled, range(5)) == [0, 2, 4, 6, 8]


async def test_a_generator_is_driven_to_what_it_returns() -> None:
    def work() -> Generator[None, None, str]:
        yield
        yield
        return "done"

    assert await Turns(Clock(), free_seconds=0.0).begin().drive(work()) == "done"
    assert in_one_go(work()) == "done"


async def test_at_most_a_few_are_gathered_at_once() -> None:
    under_way = 0
    most = 0

    async def work(number: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return -number

    numbers = list(range(100))
    assert await Turns(Clock()).begin().gather(work, numbers) == [-number for number in numbers]
    assert most == len(next(slices(numbers)))


async def test_what_was_begun_outside_a_task_goes_on_in_one() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def work() -> int:
        return await future + 1

    coroutine = work()
    wanted = coroutine.send(None)
    task = asyncio.ensure_future(_awaited(StartedCoroutine(coroutine, wanted)))
    asyncio.get_running_loop().call_soon(future.set_result, 41)
    assert await task == 42


async def test_a_cancellation_reaches_what_was_begun_outside_a_task() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    coroutine = _awaited(future)
    task = asyncio.ensure_future(_awaited(StartedCoroutine(coroutine, coroutine.send(None))))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert future.cancelled()


async def _awaited(element: "asyncio.Future[int] | StartedCoroutine[int]") -> int:
    return await element


def test_one_long_request_is_busy_also_while_it_waits_for_something_else() -> None:
    """A collection of all objects comes as soon as the turns are said to be calm."""
    loop = SimLoop(stream(1, "timers"), seconds_max=100)
    answers: list[tuple[float, bool]] = []

    async def long_request() -> None:
        turns = Turns(loop.time, free_seconds=0.0)
        turns.on_busy = lambda is_busy: answers.append((loop.time(), is_busy))
        turn = turns.begin()
        for _ in range(300):
            await turn.step()
            await asyncio.sleep(0.01)  # the controller's work, say
        await asyncio.sleep(2)

    try:
        loop.run_until_complete(long_request())
    finally:
        loop.close()
    assert [is_busy for _, is_busy in answers] == [True, False]
    assert answers[-1][0] >= 3.0


async def test_each_element_is_there_once_in_the_order_of_its_first_place() -> None:
    clock = Clock()
    turn = Turns(clock, free_seconds=1.0).begin()
    names = [f"name-{number % 5000}" for number in range(20_000)]
    assert await turn.unique(names) == names[:5000]
    assert await turn.unique([]) == []


@pytest.mark.parametrize("count", [0, 1, 4096, 10_000])
async def test_a_sort_in_steps_sorts(count: int) -> None:
    numbers = [(number * 7919) % 10_007 for number in range(count)]
    turn = Turns(Clock()).begin()
    assert await turn.sort(numbers) == sorted(numbers)
