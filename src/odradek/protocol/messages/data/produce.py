"""Produce (key 0): append record batches to partitions.

One request carries at most one batch per partition, as opaque bytes (`odradek.records` reads them). `acks` is
0 (no answer at all), 1 (the leader has it) or -1 (all in-sync replicas have it). The answer names, per
partition, the offset of the first record and, under LogAppendTime, the time that was written into the batch.

Versions
     3  transactional id; only record batches of magic 2 (KIP-98)
     4  KAFKA_STORAGE_ERROR may be answered
     5  response: log start offset, which lets idempotent producers see that their state was only cut off by
     retention 6  quota violations are answered first and throttled afterwards (KIP-219)
     7  zstd (KIP-110)
     8  response: error message and the records to blame (KIP-467)
     9  flexible
    10  response, tagged: the current leader and its address with NOT_LEADER_OR_FOLLOWER (KIP-951)
    11  TRANSACTION_ABORTABLE (KIP-890)
    12  a transactional produce adds its partition to the transaction by itself (KIP-890)
    13  topic ids in place of names (KIP-516)

0-2 carried older formats and were removed in 4.0, yet brokers advertise them: see `api.py`.
"""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    Buffer,
    Message,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_set,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: Buffer | None = record_set("0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Message, api=0, versions="3-13", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0)


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Message, api=0, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
