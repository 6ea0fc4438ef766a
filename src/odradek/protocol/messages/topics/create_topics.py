"""CreateTopics (key 19): create topics, or check whether they could be.

Partition count and replication factor of -1 mean the broker's defaults. With an explicit `assignments` both
must be -1.

Versions
     2  response: throttle time; `validate_only` (from 1)
     3  quota violations are answered first and throttled afterwards (KIP-219)
     4  -1 for both counts without assignments (KIP-464)
     5  flexible; response: the topic's configuration, or the reason why it is not shown (KIP-525)
     6  THROTTLING_QUOTA_EXCEEDED (KIP-599)
     7  response: topic id (KIP-516)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, string, uuid


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32("0+")
    broker_ids: list[int] = array(int32, "0+")


class CreatableTopicConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class CreatableTopic(Struct):
    name: str = string("0+")
    num_partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment, "0+")
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig, "0+")


class CreateTopicsRequest(Message, api=19, versions="2-7", flexible="5+"):
    topics: list[CreatableTopic] = array(CreatableTopic, "0+")
    timeout_ms: int = int32("0+", default=60000)
    validate_only: bool = boolean("1+")


class CreatableTopicConfigs(Struct):
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


class CreatableTopicResult(Struct):
    name: str = string("0+")
    topic_id: UUID = uuid("7+", ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, "5+", nullable="5+", ignorable=True
    )


class CreateTopicsResponse(Message, api=19, versions="2-7", flexible="5+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult, "0+")
