"""WriteShareGroupState (key 85): a partition's leader makes a share group's progress durable (KIP-932).

Delivery states of a batch of offsets: 0 available, 2 acknowledged, 4 archived. A start offset of -1 keeps the old.

Versions
     1  how many records above the start offset are done with, from which lag is computed (KIP-1226)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Message, api=85, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Message, api=85, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult, "0+")
