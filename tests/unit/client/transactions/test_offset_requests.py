"""Offsets in a transaction name their topics by id where the ids are known (KIP-1319)."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.client.groups.values import OffsetAndMetadata
from odradek.client.transactions.offset_requests import newest_version, topics_of
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.protocol import api_by_name

READ, AGAIN = UUID(int=1), UUID(int=2)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_partitions_of_a_topic_are_together_and_those_of_two_lives_are_not() -> None:
    same = topics_of({
        FIRST: OffsetAndMetadata(5, topic_id=READ, leader_epoch=3, metadata="note"),
        SECOND: OffsetAndMetadata(7, topic_id=READ),
    })  # fmt: skip
    assert [(topic.name, topic.topic_id) for topic in same] == [("t", READ)]
    assert [
        (
            partition.partition_index,
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata,
        )
        for partition in same[0].partitions
    ] == [(0, 5, 3, "note"), (1, 7, -1, "")]
    apart = topics_of({
        FIRST: OffsetAndMetadata(5, topic_id=READ),
        SECOND: OffsetAndMetadata(7, topic_id=AGAIN),
    })  # fmt: skip
    assert [topic.topic_id for topic in apart] == [READ, AGAIN]


@pytest.mark.parametrize(
    ("ids", "modern", "at_most"),
    [
        ((READ, AGAIN), True, None),
        ((READ, ZERO_UUID), True, 5),
        ((ZERO_UUID, ZERO_UUID), True, 5),
        ((READ, AGAIN), False, 4),
        ((), True, None),
    ],
)
def test_the_newest_version_is_one_that_can_name_every_topic(
    ids: tuple[UUID, ...], modern: bool, at_most: int | None
) -> None:
    offsets = {
        TopicPartition("t", number): OffsetAndMetadata(1, topic_id=topic_id)
        for number, topic_id in enumerate(ids)
    }
    assert newest_version(offsets, epoch_per_transaction=modern) == at_most
    assert api_by_name("TxnOffsetCommit").latest_stable == 6
