"""WriteShareGroupState (85): a partition's leader has a share group's progress kept (KIP-932). Between brokers. Versions 0-1.

FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST for batches that cannot be. How much is done with above the
start (v1) is counted here, from the batches.
"""

from __future__ import annotations

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.share.state import StateChange
from odradek.groups.share.state_formats import unlisted
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import MalformedMessage
from odradek.protocol.messages.share.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    results = await for_each_partition(
        broker,
        request,
        lambda store, partition_key, partition: store.write(partition_key, _change(partition)),
        _result,
        WriteStateResult,
    )
    return WriteShareGroupStateResponse(results=results)


def _change(requested: PartitionData) -> StateChange:
    try:
        batches = unlisted(requested.state_batches)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return StateChange(requested.state_epoch, requested.leader_epoch, requested.start_offset, batches)


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = ApiHandler(85, handle)
