"""ElectLeaders (key 43): elect leaders now: preferred ones, or unclean ones where no one in sync is left.

A null list of partitions means all of them.

Versions
     1  election type; response: an error for the whole request (KIP-460)
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ElectLeadersRequest(Message, api=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


class ElectLeadersResponse(Message, api=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
