"""ShareAcknowledge (key 79): accept, release or reject records acquired from a share group (KIP-932).

Acknowledgements may also ride on the next ShareFetch, whose types and sessions this request shares. Version 0
was early access and was removed.

Versions
     2  renewal of locks; response: how long they last (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array(int8, "0+")


class AcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class AcknowledgeTopic(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, "0+")


class ShareAcknowledgeRequest(Message, api=79, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)


class ShareAcknowledgeResponse(Message, api=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")
