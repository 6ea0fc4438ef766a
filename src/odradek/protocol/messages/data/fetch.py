"""Fetch (key 1): read record batches, for consumers and followers alike.

The answer waits until `min_bytes` are there or `max_wait_ms` have passed. Batches come whole: the first may
begin before the offset asked for, and the first one of a request is sent even when it exceeds the limits
(KIP-74). Sizes are limited per partition and over all, partitions being served in the order of the request.

Fetch sessions (KIP-227): session id 0 with epoch 0 opens one, further requests name only what changed,
partitions in `forgotten_topics_data` leave it; epoch -1 closes it or does without.

Versions
     4  isolation level, last stable offset and aborted transactions (KIP-98); only magic 2 batches
     5  log start offset (KIP-107)
     6  response: KAFKA_STORAGE_ERROR
     7  sessions (KIP-227)
     8  quota violations are answered first and throttled afterwards (KIP-219)
     9  leader epoch of the reader, for fencing (KIP-320)
    10  zstd (KIP-110)
    11  rack of the reader and the replica it should prefer (KIP-392)
    12  flexible; the epoch last fetched and where logs diverge (KIP-595); tagged: current leader, snapshot
    13  topic ids in place of names (KIP-516)
    14  OFFSET_MOVED_TO_TIERED_STORAGE (KIP-405)
    15  a follower's id and broker epoch move to the tagged `replica_state` (KIP-903)
    16  response, tagged: addresses of new leaders (KIP-951)
    17  directory id of the follower (KIP-853)
    18  high watermark known to the follower (KIP-1166)
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    INT32_MAX,
    INT64_MAX,
    Buffer,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)


class ReplicaState(Struct):
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


class FetchPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64("0+")
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32("0+")
    replica_directory_id: UUID = uuid("17+", tag=0, ignorable=True)
    high_watermark: int = int64("18+", default=INT64_MAX, tag=1, ignorable=True)


class FetchTopic(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    topic: str = string("7-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[int] = array(int32, "7+")


class FetchRequest(Message, api=1, versions="4-18", flexible="12+"):
    cluster_id: str | None = string("12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("3+", default=INT32_MAX, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


class SnapshotId(Struct):
    end_offset: int = int64("0+", default=-1)
    epoch: int = int32("0+", default=-1)


class AbortedTransaction(Struct):
    producer_id: int = int64("4+")
    first_offset: int = int64("4+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    high_watermark: int = int64("0+")
    last_stable_offset: int = int64("4+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(
        AbortedTransaction, "4+", nullable="4+", ignorable=True
    )
    preferred_read_replica: int = int32("11+", default=-1)
    records: Buffer | None = record_set("0+", nullable="0+")


class FetchableTopicResponse(Struct):
    topic: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


class FetchResponse(Message, api=1, versions="4-18", flexible="12+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
