"""The virtual-time loop: what it promises beyond asyncio's contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

import pytest

from odradek.testing.sim import DeadlockError, OutOfTimeError, SimLoop, stream

pytestmark = pytest.mark.sim
T = TypeVar("T")


def loop_of(seed: int, **bounds: float) -> SimLoop:
    return SimLoop(stream(seed, "timers"), **bounds)  # type: ignore[arg-type]


def run(seed: int, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    loop = loop_of(seed)
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_year_of_waiting_costs_nothing() -> None:
    loop = loop_of(1, seconds_max=1e9)
    loop.run_until_complete(asyncio.sleep(365 * 86400))
    assert loop.time() == 365 * 86400
    loop.close()


def test_a_deadlock_names_the_tasks_that_wait() -> None:
    async def waits_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    loop = loop_of(1)
    task = loop.create_task(waits_for_nothing(), name="the stuck one")
    with pytest.raises(
        DeadlockError, match=r"(?s)nothing can ever happen.*the stuck one at .*test_loop.py:\d+"
    ):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_virtual_time_is_bounded() -> None:
    loop = loop_of(1, seconds_max=10)
    with pytest.raises(OutOfTimeError, match="passed 10 s of virtual time"):
        loop.run_until_complete(asyncio.sleep(11))
    loop.close()


def test_a_busy_wait_runs_out_of_steps() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = loop_of(1, steps_max=1000)
    task = loop.create_task(spin())
    with pytest.raises(OutOfTimeError, match="steps"):
        loop.run_until_complete(task)
    task.cancel()
    loop.allow_more_steps(10)
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_the_seed_orders_timers_of_one_instant_and_nothing_else() -> None:
    async def record() -> list[int]:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        for number in range(20):
            loop.call_at(1.0, order.append, number)
        loop.call_at(0.5, order.append, -1)
        loop.call_at(1.5, order.append, 99)
        await asyncio.sleep(2)
        return order

    orders = [tuple(run(seed, record)) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert len(set(orders)) == 3
    for order in orders:
        assert sorted(order) == [-1, *range(20), 99]
        assert (order[0], order[-1]) == (-1, 99)


def test_blocking_work_is_refused() -> None:
    loop = loop_of(1)
    with pytest.raises(RuntimeError, match="Offload port"):
        loop.run_until_complete(asyncio.to_thread(print))
    loop.close()


def test_a_stall_makes_timers_late() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        times: list[float] = []
        loop.call_later(1, lambda: times.append(loop.time()))
        loop.stall(5)
        await asyncio.sleep(0)
        return times

    assert run(1, main) == [5.0]


def test_many_cancelled_timers_are_forgotten() -> None:
    async def main() -> None:
        for _ in range(20_000):
            async with asyncio.timeout(3000):
                await asyncio.sleep(0.001)

    loop = loop_of(1)
    loop.run_until_complete(main())
    assert len(loop._timers) < 2000
    loop.close()


def test_default_task_names_do_not_depend_on_earlier_runs() -> None:
    async def name() -> str:
        task = asyncio.current_task()
        assert task is not None
        return task.get_name()

    assert run(1, name) == run(2, name) == "task-1"


def test_a_turn_in_which_only_the_kernel_acts_is_not_looked_at() -> None:
    loop = loop_of(1)
    loop.kernel = Context()
    looked_at_s: list[float] = []
    loop.on_turn = lambda: looked_at_s.append(loop.time())
    acted: list[int] = []
    loop.call_at(1, acted.append, 1, context=loop.kernel)
    loop.call_at(2, acted.append, 2)
    loop.call_at(3, acted.append, 3, context=loop.kernel)
    loop.call_at(3, acted.append, 4)
    loop.run_until_complete(asyncio.sleep(4))
    loop.close()
    assert sorted(acted) == [1, 2, 3, 4]
    assert {2.0, 3.0} <= set(looked_at_s)
    assert 1.0 not in looked_at_s
