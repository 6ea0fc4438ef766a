"""The targets of large groups on the offload port: one at a time for a group, and never again what no batch can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.broker.coordinators.target_worker import TargetWorker
from odradek.groups.shard.large_targets import LargeTarget
from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import Outcome


class HeldOffload:
    """Work ends when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun = 0

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        self.begun += 1
        await self.may_end.wait()
        return work(*arguments)


class FakeShard:
    def execute(self, operation: Callable[[Any, Any], Outcome[Any]]) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(operation(None, None).reply)
        return done


def worker_on(offload: HeldOffload) -> TargetWorker:
    return TargetWorker(offload, lambda group_id: FakeShard())  # type: ignore[arg-type, return-value]


def target(epoch: int, write: Callable[[Any], None]) -> LargeTarget:
    def written(machine: Any, now: Any, outcome: Any) -> Outcome[None]:
        write(outcome)
        return Outcome(None)

    return LargeTarget(group_id="g", epoch=epoch, compute=lambda: {"member": epoch}, write=written)


async def test_a_target_is_written_when_it_is_there_and_no_other_is_begun_before() -> None:
    offload = HeldOffload()
    worker = worker_on(offload)
    answers: list[Any] = []
    assert worker.is_wanted("g", 1)
    worker.begin(target(1, answers.append))
    assert not worker.is_wanted("g", 1)
    assert not worker.is_wanted("g", 2)
    assert worker.is_wanted("another", 1)
    offload.may_end.set()
    await until(lambda: bool(answers))
    assert answers == [{"member": 1}]
    assert worker.is_wanted("g", 2)


async def test_a_target_that_no_batch_can_hold_is_not_worked_out_again_for_the_same_epoch() -> None:
    offload = HeldOffload()
    offload.may_end.set()
    worker = worker_on(offload)

    def refuse(outcome: Any) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "too large")

    worker.begin(target(1, refuse))
    for _ in range(5):
        await asyncio.sleep(0)
    with pytest.raises(KafkaError, match="too large"):
        worker.is_wanted("g", 1)
    assert worker.is_wanted("g", 2)


async def test_an_operation_may_begin_the_next_one_while_it_drops_a_target() -> None:
    offload = HeldOffload()
    offload.may_end.set()
    worker = worker_on(offload)
    answers: list[Any] = []

    def begin_next(outcome: Any) -> None:
        assert worker.is_wanted("g", 2)
        worker.begin(target(2, answers.append))

    worker.begin(target(1, begin_next))
    await until(lambda: bool(answers))
    assert answers == [{"member": 2}]


@pytest.mark.parametrize("is_begun", [True, False])
async def test_nothing_is_written_after_the_coordinators_are_closed(is_begun: bool) -> None:
    offload = HeldOffload()
    worker = worker_on(offload)
    answers: list[Any] = []
    worker.begin(target(1, answers.append))
    if is_begun:
        await until(lambda: offload.begun == 1)
    worker.close()
    offload.may_end.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not answers
