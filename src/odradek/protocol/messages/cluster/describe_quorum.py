"""DescribeQuorum (key 55): state of a Raft quorum: leader, voters, observers (KIP-595).

Versions
     1  response: when replicas fetched last and when they were caught up (KIP-836)
     2  response: directory ids, error messages, addresses of the voters (KIP-853)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DescribeQuorumRequest(Message, api=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData, "0+")


class ReplicaState(Struct):
    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class QuorumState(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


class QuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[QuorumState] = array(QuorumState, "0+")


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Message, api=55, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopic] = array(QuorumTopic, "0+")
    nodes: list[Node] = array(Node, "2+")
