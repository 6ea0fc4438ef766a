"""Planted bugs of coordinators that move between brokers."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from tests.simulation.mutant import Patches, mutant

from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.broker.coordinators.transaction_markers import ClusterMarkers
from odradek.model.errors import ErrorCode
from odradek.shards import ShardLog, Shards
from odradek.shards.shard import ShardState
from odradek.transactions.markers import MarkerBatch

_SCENARIO = "cluster"
_STREAMS = "streams_failover"


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


@mutant("members of a streams group are answered with what no successor would know", _STREAMS)
def answers_no_successor_knows() -> Patches:
    def committed(self: PartitionLog, last_offset: int) -> Any:
        return None

    yield patch.object(PartitionLog, "committed", committed)


@mutant("a coordinator that is elected again goes on with what it knew, not with what others wrote", _STREAMS)
def earlier_term_remembered() -> Patches:
    resign, elect = Shards.resigned, Shards.elected
    remembered: WeakKeyDictionary[Shards[Any], dict[int, Any]] = WeakKeyDictionary()

    def resigned(self: Shards[Any], index: int) -> None:
        shard = self._shards.get(index)
        if shard is not None and shard.state is ShardState.ACTIVE:
            remembered.setdefault(self, {})[index] = shard._machine
        resign(self, index)

    def elected(self: Shards[Any], index: int, log: ShardLog) -> None:
        elect(self, index, log)
        machine = remembered.get(self, {}).pop(index, None)
        if machine is not None:
            shard = self._shards[index]
            shard._loading.cancel()
            shard._begin(machine, 0)

    yield patch.object(Shards, "resigned", resigned)
    yield patch.object(Shards, "elected", elected)
