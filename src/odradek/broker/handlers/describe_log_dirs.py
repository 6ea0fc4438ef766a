"""DescribeLogDirs (35). Versions 1-5: data directories, what they hold, and their space (KIP-827, from v4)."""

from __future__ import annotations

from odradek.broker.context import Circumstances, Parts, Served
from odradek.broker.replicas import DirectoryState
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    parts: Parts, circumstances: Circumstances, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        error_code=ErrorCode.NONE,
        results=[_result(state, wanted) for state in parts.replicas.directory_states()],
    )


def _result(state: DirectoryState, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if state.offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=state.path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in state.partitions:
        name = partition.name
        if wanted is not None and name not in wanted:
            continue
        topic = topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=partition.log.size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
        )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=state.path,
        topics=list(topics.values()),
        total_bytes=state.total_bytes,
        usable_bytes=state.usable_bytes,
    )


SERVED = Served(35, handle)
