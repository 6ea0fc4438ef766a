"""InitializeShareGroupState (83): a share group begins to read a partition there (KIP-932). Between brokers. Version 0.

The epoch of the state must be newer than that of what is kept: FENCED_STATE_EPOCH.
"""

from __future__ import annotations

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.share.state_requests import kept
from odradek.model.errors import KafkaError
from odradek.protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)


async def handle(
    parts: BrokerContext, circumstances: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    outcomes = await kept(
        parts,
        request,
        lambda store, place, one: store.initialize(place, one.state_epoch, one.start_offset),
        _result,
    )
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in outcomes
        ]
    )


def _result(partition: int, outcome: KafkaError | None) -> PartitionResult:
    if outcome is None:
        return PartitionResult(partition=partition)
    return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)


SERVED = ApiHandler(83, handle)
