"""DeleteRecords (key 21): drop the records below an offset; -1 means the high watermark (KIP-107).

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, string


class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Struct):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Message, api=21, versions="0-2", flexible="2+"):
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Struct):
    name: str = string("0+")
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Message, api=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult, "0+")
