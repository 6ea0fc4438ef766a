"""The storage of one simulated broker: logs in data directories under group commit, as the broker runs them.

It stands between `storage/` and the scenario that torments it. The directories, the logs, `replication/`'s
Partition and Flusher are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from uuid import UUID

from tests.simulation.ledger import ReadRecord, found_in

from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import LeaderEpoch, TopicPartition
from odradek.replication.flusher import Flusher
from odradek.replication.partition import Partition
from odradek.runtime.ports import Runtime
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.log.log import Log
from odradek.testing.sim.failures import ViolationError


class Store:
    """Partitions of one life. `on_failure` hears that a data directory cannot be used any more."""

    def __init__(self, runtime: Runtime, paths: Sequence[str], on_failure: Callable[[], None]) -> None:
        self._runtime = runtime
        self._on_failure = on_failure
        self._flusher = Flusher(runtime.offload, self._flush_failed)
        self._directories = LogManager.open(runtime, paths, node_id=1)
        self._directories.on_failure(self._directory_failed)
        self.partitions: list[Partition] = []

    @property
    def directories(self) -> LogManager:
        return self._directories

    async def open(self, names: list[TopicPartition], config: LogConfig) -> None:
        for index, name in enumerate(names):
            topic_id = UUID(int=index + 1)
            log = await self._directories.open_log(name, topic_id, config)
            epoch = LeaderEpoch(log.latest_epoch + 1)
            log.begin_epoch(epoch)
            self.partitions.append(Partition(name, topic_id, log, epoch, self._flusher))

    def _flush_failed(self, partition: Partition, error: OSError) -> None:
        self._directories.fail(partition.log, error)

    def _directory_failed(self, path: str, error: OSError) -> None:
        for partition in self.partitions:
            if self._directories.log_directory_of(partition.name) == path and partition.retired is None:
                partition.retire(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} failed: {error}"))
        self._on_failure()

    async def write_checkpoints(self) -> None:
        await self._directories.write_checkpoints()

    async def write_extents(self) -> bool:
        return await self._directories.write_extents()

    async def apply_retention(self, partition: Partition) -> None:
        now_ms = self._runtime.clock.wall_ms()
        await self._directories.apply_retention(partition.log, now_ms, below=partition.high_watermark)

    async def repair(self) -> None:
        """Give back logs whose disk was full."""
        for log in self._directories.failed_logs():
            await self._directories.repair(log)

    async def close(self) -> None:
        await self._flusher.drain()
        await self._directories.close_logs()
        self._directories.close()


def read_found(log: Log, offset: int, end_offset: int, max_bytes: int) -> list[ReadRecord]:
    """One read, as records from `offset` on."""
    fetched = log.read(offset, max_bytes, end_offset=end_offset, at_least_one=True)
    return found_in(fetched.records, offset)


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[ReadRecord]:
    """Everything from the log's start to its end."""
    records: list[ReadRecord] = []
    offset = log.start_offset
    while offset < log.end_offset:
        piece = read_found(log, offset, log.end_offset, max_bytes)
        if not piece:
            break
        records += piece
        offset = piece[-1].offset + 1
    return records


def check_lookups(log: Log, results: Sequence[ReadRecord], rng: Random) -> None:
    """What the log answers about times and single offsets, against `found`, which is all that it holds."""
    for wanted in rng.sample(results, min(len(results), 4)):
        time = wanted.timestamp + rng.choice((-1, 0, 1))
        expected = next((record.offset for record in results if record.timestamp >= time), None)
        position = log.offset_for_timestamp(time)
        if (position.offset if position else None) != expected:
            raise ViolationError(
                f"{log.topic_partition}: time {time} is at offset {expected}, not at {position}"
            )
        piece = read_found(log, wanted.offset, log.end_offset, 1)
        if not piece or piece[0] != wanted:
            raise ViolationError(f"{log.topic_partition}: a read at {wanted.offset} returned {piece[:1]}")
