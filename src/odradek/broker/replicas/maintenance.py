"""Regular work on the open replicas: retention, compaction, checkpoints, flushes, checks of the ISR."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.broker.replicas.replica_registry import ReplicaRegistry
from odradek.broker.replicas.roles import ReplicaRoles
from odradek.config.broker import BrokerConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy
from odradek.replication.partition import Partition
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.storage import log_cleaner as service
    from odradek.storage.log_cleaner import LogCleaner
else:
    service = lazy("odradek.storage.log_cleaner")

_log = events.get("broker")
_TURN: Final = 256
"""The number of partitions after which other tasks get the loop."""


class ReplicaMaintenance:
    """Runs the regular work on open replicas. The rounds of `app.py` call it. Used on the event loop only."""

    def __init__(
        self,
        runtime: Runtime,
        directories: LogManager,
        registry: ReplicaRegistry,
        roles: ReplicaRoles,
        config: Callable[[], BrokerConfig | None],
    ) -> None:
        self._runtime = runtime
        self._directories = directories
        self._registry = registry
        self._roles = roles
        self._config = config
        self._cleaner: LogCleaner | None = None
        """Made, and imported, for the first log that is compacted."""
        self._compacts = True
        self._is_draining = False
        """Whether the crowding logs are flushed in the loop's next round."""
        directories.on_crowding(self._flush_crowding_soon)

    async def apply_retention(self) -> None:
        now_ms = self._runtime.clock.wall_ms()
        for partition in self._registry:
            if partition.retired is None:
                await self._retain(partition, now_ms)
            await asyncio.sleep(0)  # tens of thousands of partitions must not hold the loop
        await self._directories.remove_deleted()

    async def _retain(self, partition: Partition, now_ms: int) -> None:
        try:
            await self._directories.apply_retention(partition.log, now_ms, below=partition.high_watermark)
        except KafkaError as error:
            _log.warning("retention_failed", partition=partition.name, reason=error.message)

    async def compact(self) -> None:
        """Compact what needs it, until nothing does."""
        compacted = [
            partition for partition in self._registry if "compact" in partition.config.cleanup_policy
        ]
        config = self._config()
        if config is None or not compacted or not self._compacts:
            return
        if self._cleaner is None:
            self._cleaner = service.LogCleaner(self._runtime, self._directories)
        await self._cleaner.run_round(compacted, config)

    def stop_compacting(self) -> None:
        """Ends the round of compaction under way soon, and begins none any more."""
        self._compacts = False
        if self._cleaner is not None:
            self._cleaner.stop()

    async def check_in_sync_replicas(self) -> None:
        """Propose to take those out of ISRs who lag."""
        now = self._runtime.clock.monotonic()
        for number, partition in enumerate(list(self._roles.shared)):
            partition.check_in_sync_replicas(now)
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)

    @property
    def end_offsets(self) -> int:
        """The sum of all: another one, if records came."""
        return sum(partition.log.end_offset for partition in self._registry)

    async def write_checkpoints(self) -> None:
        await self._directories.write_checkpoints(await self.high_watermarks())

    async def high_watermarks(self) -> dict[TopicPartition, int]:
        high_watermarks: dict[TopicPartition, int] = {}
        for number, partition in enumerate(list(self._registry)):
            high_watermarks[partition.name] = partition.high_watermark
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        return high_watermarks

    async def flush_by_time(self) -> None:
        """Flush logs whose `flush.ms` has passed, and logs that keep descriptors that others need."""
        for partition in self._registry.timed:
            partition.flush_if_due()
        self._directories.review_crowding()
        self._flush_crowding()

    def _flush_crowding_soon(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            asyncio.get_running_loop().call_soon(self._flush_crowding)

    def _flush_crowding(self) -> None:
        self._is_draining = False
        for name in self._directories.drain_crowding_logs():
            if (crowding := self._registry.partitions.get(name)) is not None:
                crowding.flush()
