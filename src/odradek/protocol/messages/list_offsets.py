from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, int8, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")
    max_num_offsets: int = int32("0", default=1)


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Message, api=2, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    old_style_offsets: list[int] = array(int64, "0")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Message, api=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
