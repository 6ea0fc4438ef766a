"""Work that stops at its syncs, alone and in step with others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.storage.directories.log_creation import LogCreationBatch
from odradek.storage.files.steps import Steps, carry_out, carry_out_together


class Trace(list[str]):
    def work(self, name: str, fails_at: str = "", sync_fails_at: str = "") -> Steps[str]:
        try:
            for step in ("1", "2"):
                self.append(f"{name}{step}")
                if fails_at == step:
                    raise ValueError(name)
                yield self.sync(f"{name}{step}", fails=sync_fails_at == step)
        finally:
            self.append(f"{name} ends")
        return f"{name} is done"

    def sync(self, name: str, *, fails: bool) -> Callable[[], None]:
        def work() -> None:
            if fails:
                raise OSError(name)
            self.append(f"sync {name}")

        return work


def test_alone_each_step_is_synced_before_the_next() -> None:
    trace = Trace()
    assert carry_out(trace.work("a")) == "a is done"
    assert trace == ["a1", "sync a1", "a2", "sync a2", "a ends"]


def test_together_all_of_a_step_is_done_before_any_of_the_next() -> None:
    trace = Trace()
    assert carry_out_together([trace.work("a"), trace.work("b")]) == ["a is done", "b is done"]
    assert trace[:2] == ["a1", "b1"]
    assert trace.index("sync a1") < trace.index("a2")
    assert trace.index("sync b1") < trace.index("b2")


@pytest.mark.parametrize("trouble", [{"fails_at": "1"}, {"fails_at": "2"}, {"sync_fails_at": "1"}])
def test_what_fails_is_cleaned_up_and_leaves_others_alone(trouble: dict[str, Any]) -> None:
    trace = Trace()
    failed, done = carry_out_together([trace.work("a", **trouble), trace.work("b")])
    assert isinstance(failed, ValueError | OSError)
    assert done == "b is done"
    assert "a ends" in trace
    with pytest.raises((ValueError, OSError), match="a"):
        carry_out(trace.work("a", **trouble))


class Threads:
    """An offload that counts."""

    def __init__(self) -> None:
        self.runs = 0
        self.error: BaseException | None = None

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        self.runs += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        return work(*arguments)


async def test_what_is_asked_for_in_one_round_shares_a_thread() -> None:
    threads, trace = Threads(), Trace()
    making = LogCreationBatch(threads)
    outcomes = await asyncio.gather(*(making.carry_out(trace.work(str(n))) for n in range(16)))
    assert outcomes == [f"{n} is done" for n in range(16)]
    assert threads.runs == 1
    await asyncio.gather(*(making.carry_out(trace.work(str(n))) for n in range(17)))
    assert threads.runs == 3, "portions of 16"


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("error", [RuntimeError("the offload is closed"), PowerCut()])
async def test_each_gets_its_own_error_and_all_get_that_of_the_thread(error: BaseException) -> None:
    threads, trace = Threads(), Trace()
    making = LogCreationBatch(threads)
    good, bad = making.carry_out(trace.work("a")), making.carry_out(trace.work("b", fails_at="2"))
    outcomes = await asyncio.gather(good, bad, return_exceptions=True)
    assert outcomes[0] == "a is done"
    assert isinstance(outcomes[1], ValueError)
    threads.error = error
    waiting = [making.carry_out(trace.work(name)) for name in "cd"]
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert outcomes == [error, error]


async def test_who_does_not_wait_any_more_is_no_trouble_to_others() -> None:
    making, trace = LogCreationBatch(Threads()), Trace()
    gone, stays = (asyncio.create_task(making.carry_out(trace.work(name))) for name in "ab")
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays == "b is done"
    assert gone.cancelled()
