"""Markers for partitions that other brokers lead: WriteTxnMarkers, gathered by leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.cluster.peer_requests import RequestBatcher, SendToPeer
from odradek.model.errors import ErrorCode, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.telemetry import events
from odradek.transactions.markers import MarkerBatch, Markers

_log = events.caused_by_peers("transactions")
_WRITE_TXN_MARKERS: Final = 27
_LANE: Final = "markers"
_UNDER_WAY_MAX: Final = 5
_RESPONSE_SECONDS_MAX: Final = 15.0
"""Longer than the other side takes for what it cannot make durable: see `transaction_markers.py`."""

Codes = Mapping[TopicPartition, ErrorCode]


class RemoteMarkers:
    """Writes transaction markers on other brokers by WriteTxnMarkers requests. Used on the event loop only."""

    def __init__(self, send_to_peer: Callable[[], SendToPeer]) -> None:
        self._send_to_peer = send_to_peer
        self._gathered: RequestBatcher[MarkerBatch, Codes] = RequestBatcher(
            self._send, key=lambda batch: batch.producer_id, under_way_max=_UNDER_WAY_MAX
        )

    def at(self, broker: BrokerId) -> Markers:
        return _MarkersOfLeader(broker, self._gathered)

    def close(self) -> None:
        self._gathered.close()

    async def _send(self, leader: BrokerId, batches: Sequence[MarkerBatch]) -> Sequence[Codes]:
        request = WriteTxnMarkersRequest(markers=[_marker(batch) for batch in batches])
        response = await self._send_to_peer()(
            leader, _WRITE_TXN_MARKERS, request, timeout_s=_RESPONSE_SECONDS_MAX, lane=_LANE
        )
        assert isinstance(response, WriteTxnMarkersResponse)
        return answers(batches, response)


class _MarkersOfLeader(NamedTuple):
    leader: BrokerId
    gathered: RequestBatcher[MarkerBatch, Codes]

    async def write(self, batch: MarkerBatch) -> Codes:
        """Returns the leader's codes, and NETWORK_EXCEPTION when it cannot be reached or its answer lacks a partition."""
        try:
            return await self.gathered.submit(self.leader, batch)
        except OdradekError as error:
            _log.debug("markers_not_sent", broker=self.leader, reason=str(error))
            return dict.fromkeys(batch.partitions, ErrorCode.NETWORK_EXCEPTION)


def answers(batches: Sequence[MarkerBatch], response: WriteTxnMarkersResponse) -> list[Codes]:
    """Returns the response's codes for each batch; no two batches have the same producer."""
    results = {marker.producer_id: marker for marker in response.markers}
    return [_codes(batch, results.get(batch.producer_id)) for batch in batches]


def _codes(batch: MarkerBatch, marker: WritableTxnMarkerResult | None) -> Codes:
    codes = dict.fromkeys(batch.partitions, ErrorCode.NETWORK_EXCEPTION)
    for topic in marker.topics if marker is not None else ():
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition_index)
            if name in codes:
                codes[name] = ErrorCode.of(partition.error_code)
    return codes


def _marker(batch: MarkerBatch) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        transaction_result=batch.is_commit,
        topics=_by_topic(batch.partitions),
        coordinator_epoch=batch.coordinator_epoch,
        transaction_version=int(batch.version),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[WritableTxnMarkerTopic]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return [WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
