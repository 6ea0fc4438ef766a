"""DeleteShareGroupState (86): forget how far a share group is in partitions (KIP-932). Between brokers. Version 0."""

from __future__ import annotations

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import KafkaError
from odradek.protocol.messages.share.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    results = await for_each_partition(
        broker,
        request,
        lambda store, partition_key, _: store.delete(partition_key),
        _result,
        DeleteStateResult,
    )
    return DeleteShareGroupStateResponse(results=results)


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = ApiHandler(86, handle)
