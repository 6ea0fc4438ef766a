"""AlterReplicaLogDirs (34). Versions 1-2: move partitions between this broker's data directories (KIP-113).

The response means that a move has begun; DescribeLogDirs shows its progress, as a future log with its lag. A
request for the partition's current directory cancels a move.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.config.data_directory import absolute_directory
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.topics.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    turn = broker.turns.begin()
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            topic_result = results.setdefault(
                topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=[])
            )
            for index in topic.partitions:
                await turn.step()
                code = _begin(broker, directory.path, topic.name, index)
                topic_result.partitions.append(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                )
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _begin(broker: BrokerContext, path: str, topic: str, index: int) -> ErrorCode:
    wanted = absolute_directory(path)
    if not path.startswith("/") or wanted not in broker.config.storage.log_dirs:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        broker.moves.start(topic, index, wanted)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


SERVED = ApiHandler(34, handle, is_quick=True)
