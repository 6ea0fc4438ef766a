"""DescribeLogDirs (35). Versions 1-5: data directories, what they hold, and their space (KIP-827, from v4).

A partition that moves between directories is shown in both, in the new one as a future log with its lag.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.replicas.log_dir_moves import FutureLog
from odradek.broker.replicas.replica_manager import DirectoryState
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.topics.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        error_code=ErrorCode.NONE,
        results=[
            _result(state, broker.moves.futures(state.path), wanted)
            for state in broker.replicas.directory_states()
        ],
    )


def _result(
    state: DirectoryState, futures: Iterable[FutureLog], wanted: set[tuple[str, int]] | None
) -> DescribeLogDirsResult:
    if state.offline:
        return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=state.path)
    present = [(partition.name, partition.log.size_bytes, 0, False) for partition in state.partitions]
    present += [(future.name, future.size_bytes, future.offset_lag, True) for future in futures]
    topics: dict[str, DescribeLogDirsTopic] = {}
    for name, size_bytes, offset_lag, is_future in present:
        if wanted is not None and name not in wanted:
            continue
        topic = topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic, partitions=[]))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=size_bytes,
                offset_lag=offset_lag,
                is_future_key=is_future,
            )
        )
    return DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=state.path,
        topics=list(topics.values()),
        total_bytes=state.total_bytes,
        usable_bytes=state.usable_bytes,
        condition=state.condition,
    )


SERVED = ApiHandler(35, handle)
