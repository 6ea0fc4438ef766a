"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the leader's log (KIP-101, KIP-320).

Followers and consumers compare it with their own position to find out where logs diverged. The answer names
the largest epoch not above the one asked for, and the offset after its last record; -1 for both when there is
none.

Versions
     2  the asker's current leader epoch, for fencing; response: throttle time (KIP-320)
     3  replica id, -2 by default: consumers may ask followers too (KIP-392)
     4  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Message, api=23, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Message, api=23, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
