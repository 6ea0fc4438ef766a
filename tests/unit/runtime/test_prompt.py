"""A prompt future calls back inside `set_result`, and otherwise is what an asyncio future is to those who await it."""

import asyncio
import gc
import weakref
from typing import Any

import pytest

from odradek.runtime.prompt import PromptFuture


class Failure(Exception):
    """What a future of these tests fails with."""


async def test_callbacks_run_in_order_before_set_result_returns() -> None:
    future: PromptFuture[int] = PromptFuture()
    calls: list[tuple[str, int]] = []
    future.add_done_callback(lambda done: calls.append(("first", done.result())))
    future.add_done_callback(lambda done: calls.append(("second", done.result())))
    future.set_result(3)
    assert calls == [("first", 3), ("second", 3)]
    future.add_done_callback(lambda done: calls.append(("late", done.result())))
    assert calls[-1] == ("late", 3)


async def test_a_callback_that_fails_is_reported_and_the_next_runs() -> None:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context))
    future: PromptFuture[None] = PromptFuture()
    calls: list[bool] = []

    def fail(_: object) -> None:
        raise ValueError("no")

    future.add_done_callback(fail)
    future.add_done_callback(lambda done: calls.append(done.done()))
    future.set_result(None)
    assert calls == [True]
    assert [str(report["exception"]) for report in reports] == ["no"]


async def test_it_can_be_awaited_before_and_after_its_result() -> None:
    future: PromptFuture[str] = PromptFuture()
    waiters = [asyncio.create_task(_await(future)) for _ in range(2)]
    await asyncio.sleep(0)
    future.set_result("done")
    assert await asyncio.gather(*waiters) == ["done", "done"]
    assert await future == "done"


async def test_an_exception_is_raised_where_it_is_awaited() -> None:
    future: PromptFuture[str] = PromptFuture()
    waiter = asyncio.create_task(_await(future))
    await asyncio.sleep(0)
    future.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await waiter
    with pytest.raises(ValueError, match="no"):
        future.result()
    assert isinstance(future.exception(), ValueError)


async def test_cancelling_the_task_that_awaits_it_cancels_it() -> None:
    future: PromptFuture[str] = PromptFuture()
    waiter = asyncio.create_task(_await(future))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert future.cancelled()
    assert not future.cancel()
    with pytest.raises(asyncio.CancelledError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.set_result("too late")


async def test_a_pending_one_has_no_result() -> None:
    future: PromptFuture[str] = PromptFuture()
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.exception()


async def test_an_asyncio_future_of_it_has_the_same_outcome() -> None:
    source: PromptFuture[str] = PromptFuture()
    future = source.as_future()
    source.set_result("done")
    assert await future == "done"
    failed: PromptFuture[str] = PromptFuture()
    future = failed.as_future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await future
    left: PromptFuture[str] = PromptFuture()
    future = left.as_future()
    future.cancel()
    await asyncio.sleep(0)
    assert left.cancelled()
    cancelled: PromptFuture[str] = PromptFuture()
    future = cancelled.as_future()
    cancelled.cancel()
    assert future.cancelled()


async def test_an_awaited_error_leaves_no_cycle_for_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        future: PromptFuture[str] = PromptFuture()
        future.set_exception(Failure())
        only = [future]
        del future
        caught = await _failure_of(only)
        gone = weakref.ref(caught)
        del caught
        assert gone() is None
    finally:
        gc.enable()


async def _await(future: PromptFuture[str]) -> str:
    return await future


async def _failure_of(futures: list[PromptFuture[str]]) -> BaseException:
    """Returns what the last future raises; the frame itself does not hold the future."""
    try:
        await futures.pop()
    except Failure as error:  # what pytest catches, it keeps in a cycle of its own
        return error
    raise AssertionError("nothing was raised")


async def test_a_future_of_another_converts_its_outcome() -> None:
    source: PromptFuture[int] = PromptFuture()
    target = source.map(lambda done: str(done.result()))
    source.set_result(3)
    assert await target == "3"
    assert await source.map(lambda done: done.result() + 1) == 4
    failed: PromptFuture[int] = PromptFuture()
    failed.set_exception(ValueError("no"))
    assert isinstance(await failed.map(PromptFuture.exception), ValueError)
    with pytest.raises(ValueError, match="no"):
        await failed.map(PromptFuture.result)


async def test_a_future_and_what_is_made_of_it_are_cancelled_together() -> None:
    source: PromptFuture[int] = PromptFuture()
    assert source.map(PromptFuture.result).cancel()
    assert source.cancelled()
    source = PromptFuture()
    target = source.map(PromptFuture.result)
    source.cancel()
    assert target.cancelled()


async def test_only_a_cancellation_reaches_the_source() -> None:
    kept: PromptFuture[int] = PromptFuture()
    PromptFuture[str](kept).set_result("done without it")
    assert not kept.done()
    given_up: PromptFuture[int] = PromptFuture()
    PromptFuture[str](given_up).cancel()
    assert given_up.cancelled()


@pytest.mark.parametrize("end", ["result", "exception", "cancellation"])
async def test_it_takes_over_the_outcome_of_a_future_of_asyncio(end: str) -> None:
    source: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future: PromptFuture[int] = PromptFuture()
    future.follow(source)
    late: PromptFuture[int] = PromptFuture()
    late.follow(source)
    late.set_result(1)
    if end == "result":
        source.set_result(3)
        assert await future == 3
    elif end == "exception":
        source.set_exception(ValueError("no"))
        with pytest.raises(ValueError, match="no"):
            await future
    else:
        source.cancel()
        await asyncio.sleep(0)
        assert future.cancelled()
    assert late.result() == 1
