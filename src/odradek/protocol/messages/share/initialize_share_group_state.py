"""InitializeShareGroupState (key 83): a group coordinator tells the share coordinator where a group begins to read
(KIP-932). The higher state epoch wins."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")


class InitializeStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class InitializeShareGroupStateRequest(Message, api=83, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[InitializeStateData] = array(InitializeStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class InitializeStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class InitializeShareGroupStateResponse(Message, api=83, versions="0", flexible="0+"):
    results: list[InitializeStateResult] = array(InitializeStateResult, "0+")
