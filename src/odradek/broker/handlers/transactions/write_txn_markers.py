"""WriteTxnMarkers (27): a coordinator, or a person who knows why, ends transactions on partitions that this broker leads.

A marker is confirmed when every replica in sync has it.
Versions 1-2; from v2 the request tells whether the coordinator raised the epoch (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from odradek.broker.coordinators.transaction_markers import LocalMarkers
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.runtime.turns import Turn, slices
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.state import TransactionVersion


async def handle(
    broker: BrokerContext, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    local = LocalMarkers(broker.kinds.groups, broker.replicas, broker.runtime.clock, lambda: broker.image)
    turn = broker.turns.begin()
    by_producer: dict[int, list[tuple[int, WritableTxnMarker]]] = {}
    for position, marker in enumerate(request.markers):
        by_producer.setdefault(marker.producer_id, []).append((position, marker))
    results: list[WritableTxnMarkerResult | None] = [None] * len(request.markers)

    async def write(markers: Iterable[tuple[int, WritableTxnMarker]]) -> None:
        last: tuple[MarkerBatch, WritableTxnMarkerResult] | None = None
        for position, marker in markers:  # one after another: two of one producer must keep their order
            batch = _batch(marker)
            if (
                last is None or last[0] != batch
            ):  # the same marker again changes nothing, and each waits for the disk
                last = batch, _result(marker, await _written(local, turn, batch))
            results[position] = last[1]
            await turn.step()

    await turn.gather(write, list(by_producer.values()))
    return WriteTxnMarkersResponse(
        markers=[marker_result for marker_result in results if marker_result is not None]
    )


async def _written(local: LocalMarkers, turn: Turn, batch: MarkerBatch) -> dict[TopicPartition, ErrorCode]:
    codes: dict[TopicPartition, ErrorCode] = {}
    for some in slices(batch.partitions):
        await turn.step()
        codes |= await local.write_for_another(replace(batch, partitions=tuple(some)))
    return codes


def _batch(marker: WritableTxnMarker) -> MarkerBatch:
    bumps = marker.transaction_version >= TransactionVersion.EPOCH_FOR_EACH
    return MarkerBatch(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        version=TransactionVersion.EPOCH_FOR_EACH if bumps else TransactionVersion.CLASSIC,
        partitions=tuple(
            dict.fromkeys(
                TopicPartition(topic.name, index)
                for topic in marker.topics
                for index in topic.partition_indexes
            )
        ),
    )


def _result(marker: WritableTxnMarker, codes: Mapping[TopicPartition, ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


SERVED = ApiHandler(27, handle)
