"""DeleteShareGroupState (key 86): forget the progress of a share group that is deleted (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")


class DeleteStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DeleteShareGroupStateRequest(Message, api=86, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[DeleteStateData] = array(DeleteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class DeleteStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class DeleteShareGroupStateResponse(Message, api=86, versions="0", flexible="0+"):
    results: list[DeleteStateResult] = array(DeleteStateResult, "0+")
