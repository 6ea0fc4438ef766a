"""ShareFetch (key 78): acquire records as a member of a share group, and acknowledge earlier ones (KIP-932).

Share sessions work like fetch sessions, without ids: a member has one per broker, epoch 0 opens it, -1 closes
it. An acknowledgement has one type for its whole batch or one for each offset: 0 gap, 1 accept, 2 release, 3
reject, 4 renew. Version 0 was early access and was removed; `partition_max_bytes` was part of it. `records`
may not be null.

Versions
     1  limits in records; response: how long acquired records stay locked
     2  acquire mode: by batches, or never more than the limit (KIP-1206); renewal of locks (KIP-1222)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    INT32_MAX,
    Buffer,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array(int8, "0+")


class FetchPartition(Struct):
    partition_index: int = int32("0+")
    partition_max_bytes: int = int32("0")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class FetchTopic(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareFetchRequest(Message, api=78, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=INT32_MAX)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    records: Buffer | None = record_set("0+", nullable="0")
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, "0+")


class ShareFetchableTopicResponse(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)


class ShareFetchResponse(Message, api=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")
