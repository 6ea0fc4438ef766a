"""ReadShareGroupState (84): a partition's leader asks how far a share group is in it (KIP-932). Between brokers. Version 0.

No earlier leader may read or write from then on: FENCED_LEADER_EPOCH. What is not known has start offset -1 and state epoch 0.
"""

from __future__ import annotations

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.share.state import UNKNOWN_OFFSET, ShareState
from odradek.model.errors import KafkaError
from odradek.protocol.messages.share.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    results = await for_each_partition(
        broker,
        request,
        lambda store, partition_key, partition: store.read(partition_key, partition.leader_epoch),
        _result,
        ReadStateResult,
    )
    return ReadShareGroupStateResponse(results=results)


def _result(partition: int, outcome: ShareState | KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition, state_epoch=0, start_offset=UNKNOWN_OFFSET)
    if isinstance(outcome, KafkaError):
        return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)
    return PartitionResult(
        partition=partition,
        state_epoch=outcome.state_epoch,
        start_offset=outcome.start_offset,
        state_batches=[
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in outcome.batches
        ],
    )


SERVED = ApiHandler(84, handle)
