"""ReadShareGroupStateSummary (87): a share group's progress in partitions, for DescribeShareGroupOffsets
(KIP-932). Versions 0-1.

Between brokers; it fences no one. How much is done with above the start offset: from v1.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.handlers.share_state_requests import for_each_partition
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.share.state import Summary
from odradek.model.errors import KafkaError
from odradek.protocol.messages.share.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

_SINCE_COUNTS = 1


async def handle(
    broker: BrokerContext, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    make_result = partial(_result, with_counts=context.api_version >= _SINCE_COUNTS)
    results = await for_each_partition(
        broker,
        request,
        lambda store, partition_key, _: store.summary(partition_key),
        make_result,
        ReadStateSummaryResult,
    )
    return ReadShareGroupStateSummaryResponse(results=results)


def _result(partition: int, outcome: Summary | KafkaError, *, with_counts: bool) -> PartitionResult:
    if isinstance(outcome, KafkaError):
        return PartitionResult(partition=partition, error_code=outcome.code, error_message=outcome.message)
    summary = PartitionResult(
        partition=partition,
        state_epoch=outcome.state_epoch,
        leader_epoch=outcome.leader_epoch,
        start_offset=outcome.start_offset,
    )
    return summary.replace(delivery_complete_count=outcome.complete_count) if with_counts else summary


SERVED = ApiHandler(87, handle)
