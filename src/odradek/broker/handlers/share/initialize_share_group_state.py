"""InitializeShareGroupState (83): a share group begins to read a partition there (KIP-932). Between brokers. Version 0.

The epoch of the state must be newer than the stored epoch: FENCED_STATE_EPOCH. A partition that does not
exist gets UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.share.state_store import ShareStateStore
from odradek.cluster.image import ClusterImage
from odradek.groups.share.state_formats import SharePartitionKey
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    results = await for_each_partition(
        broker,
        request,
        partial(_initialize, broker.image),
        _result,
        InitializeStateResult,
    )
    return InitializeShareGroupStateResponse(results=results)


def _initialize(
    image: ClusterImage, store: ShareStateStore, partition_key: SharePartitionKey, requested: PartitionData
) -> Awaitable[None]:
    """Initializes the state. Raises UNKNOWN_TOPIC_OR_PARTITION: no state is kept for a partition that does not exist."""
    topic = image.topics_by_id.get(partition_key.topic_id)
    if topic is None or not 0 <= partition_key.partition < len(topic.partitions):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"no partition {partition_key.partition} of topic {partition_key.topic_id}",
        )
    return store.initialize(partition_key, requested.state_epoch, requested.start_offset)


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = ApiHandler(83, handle)
