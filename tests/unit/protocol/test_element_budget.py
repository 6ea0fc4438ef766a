"""How many elements a message may have, and what is malformed before that is asked."""

from __future__ import annotations

import struct

import pytest

from odradek.protocol import MalformedMessage, decode
from odradek.protocol.compiled import encode
from odradek.protocol.errors import TooManyElements
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


def test_more_structs_than_fit_into_the_message_are_malformed_and_not_too_many() -> None:
    data = struct.pack(">i", 1_000_000) + struct.pack(">i", 1)
    with pytest.raises(MalformedMessage):
        decode(DeleteTopicsRequest, 1, data, 0, BUDGET)
