"""WriteShareGroupState (85): a partition's leader has a share group's progress kept (KIP-932). Between brokers. Versions 0-1.

FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST for batches that cannot be. How much is done with above the
start (v1) is counted here, from the batches.
"""

from __future__ import annotations

from odradek.broker.handlers.share_state_requests import kept
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
    results = await kept(
        broker,
        request,
        lambda store, place, partition: store.write(place, _change(partition)),
        _result,
        WriteStateResult,
    )
    return WriteShareGroupStateResponse(results=results)


def _change(asked: PartitionData) -> StateChange:
    try:
        batches = unlisted(asked.state_batches)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return StateChange(asked.state_epoch, asked.leader_epoch, asked.start_offset, batches)


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = ApiHandler(85, handle)
