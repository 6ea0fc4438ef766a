"""A fetch of what is on the disk alone: another thread reads it, and the answer is the same."""

from typing import Any

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.storage.segment import readable_segment
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

    monkeypatch.setattr(readable_segment, "_RECENT_BYTES", 0)
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
    answers = (await wire.call("ListOffsets", 7, request)).topics[0].partitions
    assert [(one.error_code, one.offset) for one in answers] == [
        (0, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]
    assert brought
