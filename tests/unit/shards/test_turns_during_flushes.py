"""What a shard writes while its log is being flushed: one batch, when the flush has ended, or after a short while."""

import asyncio
from collections.abc import Callable

import pytest
from tests.kit.waiting import PATIENCE_S
from tests.unit.shards.test_shard import MemoryLog, listen, ready, say

from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import BatchProducer


class FlushingLog(MemoryLog):
    """A log that is being flushed until `flush_ends`."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def call_after_flush(self, call: Callable[[], None]) -> bool:
        self.waiting.append(call)
        return True

    def flush_ends(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


async def test_what_is_written_during_a_flush_is_one_batch_at_its_end() -> None:
    log = FlushingLog()
    shard = await ready(log)
    replies = []
    for word in ("one", "two", "three"):
        replies.append(shard.execute(say(word)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    heard = shard.execute(listen)
    assert log.end_offset == 0
    log.flush_ends()
    assert (len(log.batches), log.end_offset) == (1, 3)
    assert [len(await reply) for reply in replies] == [1, 2, 3]
    assert await heard == ["one", "two", "three"]


async def test_a_flush_that_does_not_end_holds_up_no_append_for_long() -> None:
    log = FlushingLog()
    shard = await ready(log)
    async with asyncio.timeout(PATIENCE_S):
        assert await shard.execute(say("one")) == ["one"]
        assert await shard.execute(say("two")) == ["one", "two"]
    assert len(log.batches) == 2
    log.flush_ends()
    assert len(log.batches) == 2


async def test_what_a_producer_writes_during_a_flush_follows_what_was_decided_before_it() -> None:
    log = FlushingLog()
    shard = await ready(log)
    first = shard.execute(say("one"))
    second = shard.execute(say("two", producer=BatchProducer(7, 0)))
    assert log.end_offset == 2
    log.flush_ends()
    await asyncio.gather(first, second)
    assert log.end_offset == 2


async def test_a_shard_that_is_closed_during_a_flush_writes_nothing_at_its_end() -> None:
    log = FlushingLog()
    shard = await ready(log)
    replies = shard.execute(say("one"))
    shard.close()
    log.flush_ends()
    assert log.end_offset == 0
    with pytest.raises(KafkaError) as refused:
        await replies
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
