"""DeleteRecords (21). Versions 0-2. Moves a partition's start up to an offset (-1: the high watermark)."""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_TO_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


def handle(
    parts: Parts, circumstances: Circumstances, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(parts, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(parts: Parts, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    index = wanted.partition_index
    try:
        partition = parts.replicas.leader(topic, index)
        parts.replicas.check_writable_by_clients(partition)
        if "delete" not in partition.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"topic {topic!r} does not have cleanup.policy=delete"
            )
        offset = partition.high_watermark if wanted.offset == _TO_HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= partition.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to {offset}: {partition.name} is readable up to {partition.high_watermark}",
            )
        parts.replicas.delete_records(partition, offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=partition.start_offset, error_code=ErrorCode.NONE
    )


SERVED = Served(21, handle)
