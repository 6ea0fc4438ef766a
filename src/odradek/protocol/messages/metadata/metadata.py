"""Metadata (key 3): brokers, topics, partitions, and who leads them.

`topics` null asks for all topics, an empty list for none; version 0 had no null, and its empty list means
all.

Versions
     1  null for all topics; response: racks, the controller, internal topics
     2  response: cluster id (KIP-78)
     3  response: throttle time
     4  the asker may forbid that missing topics are created (KIP-4)
     5  response: replicas on failed disks (KIP-112)
     6  quota violations are answered first and throttled afterwards (KIP-219)
     7  response: leader epochs (KIP-320)
     8  operations that the asker is allowed, on request (KIP-430)
     9  flexible
    10  topic ids in the response (KIP-516); asking by id was declared here but works from 12
    11  the operations on the cluster move to DescribeCluster (KIP-700)
    12  topics by id
    13  response: an error for the whole request (KIP-1102)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import INT32_MIN, Message, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


class MetadataRequest(Message, api=3, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: UUID = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=INT32_MIN)


class MetadataResponse(Message, api=3, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=INT32_MIN)
    error_code: int = int16("13+", ignorable=True)
