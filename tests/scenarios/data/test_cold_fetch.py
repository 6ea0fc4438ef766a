"""A fetch of what is on the disk alone: another thread reads it, and the answer is the same."""

from typing import Any

import pytest
from tests.kit.requests import fetch_request

from odradek.broker.fetch.delayed_fetch import ConsumerWaiting
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.records import decode_batch, split_batches
from odradek.storage.segment import segment_reader
from odradek.testing.guarded_disk import GuardedFile


async def test_what_is_not_in_memory_is_brought_by_a_thread_once_and_answered_whole(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses to be waited for on the loop: `bring` there would fail the test."""
    await wire.create("t")
    values = [b"%d" % number for number in range(5)]
    await wire.produce("t", values)
    brought: list[tuple[int, int]] = []
    real = GuardedFile.bring

    def bring(self: GuardedFile, length: int, position: int) -> None:
        brought.append((length, position))
        real(self, length, position)

    monkeypatch.setattr(segment_reader, "RECENT_BYTES", 0)
    monkeypatch.setattr(GuardedFile, "is_at_hand", lambda self, length, position: False)
    monkeypatch.setattr(GuardedFile, "bring", bring)
    assert await wire.values("t") == values
    assert len(brought) == 1
    data = await wire.fetch("t", 2, max_wait_ms=20_000)
    assert len(data.records) > 0, "it does not wait for more"
    assert len(brought) == 2
    assert (await wire.fetch("t", 5)).records == b"", "at the end there is nothing to bring"
    assert len(brought) == 2


async def test_a_question_for_a_time_waits_for_the_disk_on_a_thread(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.create("t")
    await wire.produce("t", [b"%d" % number for number in range(5)])
    brought: list[str] = []
    real = GuardedFile.bring

    def bring(self: GuardedFile, length: int, position: int) -> None:
        brought.append(self._path)
        real(self, length, position)

    monkeypatch.setattr(GuardedFile, "is_at_hand", lambda self, length, position: False)
    monkeypatch.setattr(GuardedFile, "bring", bring)
    asked = [
        ListOffsetsPartition(partition_index=0, timestamp=1_700_000_000_003),
        ListOffsetsPartition(partition_index=1, timestamp=0),
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
    answers = (await wire.ask(request, 7)).topics[0].partitions
    assert [(record.error_code, record.offset) for record in answers] == [
        (0, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert brought


@pytest.mark.parametrize("few", [True, False], ids=["few partitions", "many partitions"])
async def test_what_has_left_the_memory_while_a_fetch_waited_is_brought_by_a_thread(
    wire: Any, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    """The disk refuses to be waited for on the loop. Two records are in memory when the fetch begins to wait for more."""
    await wire.create("t")
    await wire.produce("t", [b"0", b"1"])
    brought: list[int] = []
    real = GuardedFile.bring

    def bring(self: GuardedFile, length: int, position: int) -> None:
        brought.append(length)
        real(self, length, position)

    waiting: list[object] = []
    begin_to_wait = ConsumerWaiting.__init__

    def note(self: Any, *arguments: Any, **options: Any) -> None:
        waiting.append(self)
        begin_to_wait(self, *arguments, **options)

    monkeypatch.setattr(segment_reader, "RECENT_BYTES", 0)
    monkeypatch.setattr(GuardedFile, "bring", bring)
    monkeypatch.setattr(GuardedFile, "is_at_hand", lambda self, length, position: not waiting)
    monkeypatch.setattr(ConsumerWaiting, "__init__", note)
    partitions = 1 if few else 201
    wanted = fetch_request("t", 0, max_wait_ms=50, min_bytes=100_000)
    wanted.topics[0].partitions.extend([wanted.topics[0].partitions[0]] * (partitions - 1))
    response = await wire.ask(wanted, 11)
    ((_, batch),) = split_batches(response.responses[0].partitions[0].records)
    assert [record.value for record in decode_batch(batch)] == [b"0", b"1"]
    assert waiting
    assert brought
