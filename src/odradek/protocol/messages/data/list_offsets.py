"""ListOffsets (key 2): the offset that belongs to a time, or to an end of the log.

A timestamp from 0 up asks for the first record at or after it. Negative ones are questions: -1 the end (under
READ_COMMITTED the last stable offset), -2 the start, -3 the record with the largest timestamp, -4 the start
of what is on local disks, -5 the last offset in tiered storage, -6 the first one not yet uploaded. Offset and
timestamp are -1 when no record answers.

Versions
     1  a single offset, and its timestamp
     2  isolation level; response: throttle time (KIP-98)
     3  quota violations are answered first and throttled afterwards (KIP-219)
     4  leader epochs for fencing, both ways (KIP-320)
     5  OFFSET_NOT_AVAILABLE (KIP-207)
     6  flexible
     7  timestamp -3 (KIP-734)
     8  timestamp -4 (KIP-405)
     9  timestamp -5 (KIP-1005)
    10  timeout for answers that have to look into tiered storage (KIP-1075)
    11  timestamp -6 (KIP-1023)

0 answered several offsets, and was removed in 4.0.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


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
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Message, api=2, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
