"""ReadShareGroupState (key 84): a partition's leader asks the share coordinator how far a share group is (KIP-932).

Delivery states of a batch of offsets: 0 available, 2 acknowledged, 4 archived."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Message, api=84, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ReadStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Message, api=84, versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult, "0+")
