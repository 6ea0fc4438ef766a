"""What workers do with what they are handed: aborts and ends of transactions do not wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from odradek.transactions.decisions import ProducerIdRequired
from odradek.transactions.state import ProducerIdentity, Transaction, TransactionState, TransactionVersion
from odradek.transactions.work import Overdue, Prepared, Work
from odradek.transactions.workers import Workers

SHARD = 2


def prepared(name: str) -> Prepared:
    transaction = Transaction(
        producer_id=5,
        producer_epoch=3,
        state=TransactionState.PREPARE_COMMIT,
        timeout_ms=1000,
        updated_ms=1,
        started_ms=1,
        partitions=frozenset(),
        client_version=TransactionVersion.EPOCH_FOR_EACH,
    )
    return Prepared(transactional_id=name, transaction=transaction, offset=7)


def overdue(name: str) -> Overdue:
    return Overdue(transactional_id=name, identity=ProducerIdentity(producer_id=6, producer_epoch=2**15 - 2))


class Scene:
    """A shard that hands out what the test gives it, and whose aborts need a producer id."""

    leader_epoch = 13

    def __init__(self) -> None:
        self.handed_out: asyncio.Queue[Work] = asyncio.Queue()
        self.finished: list[str] = []
        self.aborts_begun = 0
        self.producer_id: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.failure: Exception = ProducerIdRequired()
        shards: Any = self
        self.workers = Workers(shards, shards, self.next_producer_id)

    def shard(self, index: int) -> Scene:
        return self

    async def execute_deferred(self, operation: Any) -> Work:
        return await self.handed_out.get()

    async def execute(self, operation: Any) -> None:
        self.aborts_begun += 1
        raise self.failure

    async def next_producer_id(self) -> int:
        return await asyncio.shield(self.producer_id)

    async def finish(self, index: int, epoch: int, prepared: Prepared) -> None:
        self.finished.append(prepared.transactional_id)

    async def hand_out(self, work: Work) -> None:
        self.handed_out.put_nowait(work)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    new_scene = Scene()
    new_scene.workers.start_worker(SHARD)
    yield new_scene
    await new_scene.workers.close()


async def test_what_is_decided_ends_while_an_abort_waits_for_a_producer_id(scene: Scene) -> None:
    await scene.hand_out(Work(prepared=(prepared("a"),), overdue=(overdue("late"),)))
    assert scene.finished == ["a"]
    await scene.hand_out(Work(prepared=(prepared("b"),)))
    assert scene.finished == ["a", "b"]


async def test_an_abort_that_is_under_way_is_not_begun_again(scene: Scene) -> None:
    await scene.hand_out(Work(overdue=(overdue("late"),)))
    await scene.hand_out(Work(overdue=(overdue("late"), overdue("later"))))
    assert scene.aborts_begun == 2


async def test_what_is_decided_ends_though_an_abort_fails(scene: Scene) -> None:
    scene.failure = RuntimeError("a fault of ours")
    await scene.hand_out(Work(prepared=(prepared("a"),), overdue=(overdue("late"),)))
    assert scene.finished == ["a"]
    await scene.hand_out(Work(overdue=(overdue("late"),)))
    assert scene.aborts_begun == 2
