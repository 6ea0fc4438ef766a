"""Planted bugs of coordinators that move between brokers."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.broker.coordinators.transaction_markers import ClusterMarkers
from odradek.model.errors import ErrorCode
from odradek.transactions.markers import MarkerBatch

_SCENARIO = "cluster"


@mutant(
    "a coordinator that begins does not wait until what it found is on every replica in sync",
    _SCENARIO,
    aside="it must die again before what it found is everywhere: not met in 16 seeds",
)
def successor_does_not_wait() -> Patches:
    def committed(self: PartitionLog, last_offset: int) -> Any:
        return None

    yield patch.object(PartitionLog, "committed", committed)


@mutant("markers for other brokers are sent, and not waited for", _SCENARIO)
def remote_markers_not_awaited() -> Patches:
    real = ClusterMarkers._write_at

    async def write_at(self: ClusterMarkers, leader: Any, batch: MarkerBatch, partitions: Any) -> Any:
        if leader == self._leaders._here():
            return await real(self, leader, batch, partitions)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    yield patch.object(ClusterMarkers, "_write_at", write_at)
