"""How many elements a message may have, and what is malformed before that is asked."""

from __future__ import annotations

import struct

import pytest

from odradek.protocol import MalformedMessage, decode
from odradek.protocol.compiled import encode
from odradek.protocol.errors import TooManyElements
from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.protocol.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest

BUDGET = 5


def reassignments(replicas: list[int]) -> bytes:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name="t", partitions=[partition])
    return encode(AlterPartitionReassignmentsRequest(timeout_ms=1, topics=[topic]), 0)


@pytest.mark.check(45)
def test_elements_of_all_arrays_together_are_counted() -> None:
    decode(AlterPartitionReassignmentsRequest, 0, reassignments([1, 2, 3]), 0, BUDGET)
    with pytest.raises(TooManyElements):
        decode(AlterPartitionReassignmentsRequest, 0, reassignments([1, 2, 3, 4]), 0, BUDGET)


def test_more_numbers_than_fit_into_the_message_are_malformed_and_not_too_many() -> None:
    data = bytearray(reassignments([7]))
    at = data.index(struct.pack(">Bi", 2, 7))
    data[at : at + 1] = b"\xff\xff\xff\x7f"
    with pytest.raises(MalformedMessage):
        decode(AlterPartitionReassignmentsRequest, 0, bytes(data), 0, BUDGET)


@pytest.mark.check(45)
def test_more_structs_than_fit_into_the_message_are_malformed_and_not_too_many() -> None:
    data = struct.pack(">i", 1_000_000) + struct.pack(">i", 1)
    with pytest.raises(MalformedMessage):
        decode(DeleteTopicsRequest, 1, data, 0, BUDGET)


def metadata(topic_count: int, tags_of_each: int) -> bytes:
    """Topics with tagged fields that no version knows."""
    topic = bytes(16) + b"\x02t" + bytes([tags_of_each]) + b"\x63\x00" * tags_of_each
    return bytes([topic_count + 1]) + topic * topic_count + b"\x00\x00\x00"


@pytest.mark.check(45)
def test_tagged_fields_count_as_elements() -> None:
    """To step over one takes as long as to read an element, and a frame holds as many."""
    decode(MetadataRequest, 12, metadata(2, 1), 0, 4)
    with pytest.raises(TooManyElements):
        decode(MetadataRequest, 12, metadata(2, 2), 0, BUDGET)


def test_tagged_fields_that_a_struct_has_are_no_elements() -> None:
    """A follower's fetch of many partitions is no larger for them."""
    partition = FetchPartition(partition=0, high_watermark=5)
    request = FetchRequest(topics=[FetchTopic(partitions=[partition] * 3)])
    assert decode(FetchRequest, 18, encode(request, 18), 0, 4)[0] == request
    bare = encode(FetchRequest(), 17)
    assert bare[-1:] == b"\x00"
    tagged = bare[:-1] + b"\x14" + b"\x63\x00" * 20
    decode(FetchRequest, 17, tagged, 0, 20)
    with pytest.raises(TooManyElements):
        decode(FetchRequest, 17, tagged, 0, 10)
