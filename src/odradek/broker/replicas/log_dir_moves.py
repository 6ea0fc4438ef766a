"""Partitions on their way between this broker's data directories: one task each (KIP-113).

A move copies while the partition is written and read, until little is missing, and then lets the partition go
on from its copy (`storage/directories/log_dir_move.py` explains why that is safe at any moment). A move that
a stop of the broker interrupts is given up.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.runtime.ports import Offload
from odradek.storage.directories.log_dir_move import FolderCopy
from odradek.telemetry import events

_log = events.get("broker")
_LITTLE_BYTES: Final = 4 << 20
"""The bytes that may be left to copy while the partition takes no appends."""
_PASSES_MAX: Final = 50
_AT_ONCE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FutureLog:
    """A copy that is not complete yet, for DescribeLogDirs."""

    name: TopicPartition
    path: str
    size_bytes: int
    offset_lag: int


@dataclass(slots=True)
class _Move:
    partition: Partition
    path: str
    copy: FolderCopy
    task: asyncio.Task[None] | None = None


class LogDirMoves:
    """Moves partitions between this broker's data directories (AlterReplicaLogDirs). Used on the event loop only."""

    def __init__(self, replicas: ReplicaManager, offload: Offload) -> None:
        self._replicas = replicas
        self._offload = offload
        self._moves: dict[TopicPartition, _Move] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._closed = False

    def futures(self, path: str) -> list[FutureLog]:
        """Returns the copies that are being made in a directory. One that has become the partition's log is none any more."""
        return [
            FutureLog(
                name=name,
                path=path,
                size_bytes=move.copy.size_bytes,
                offset_lag=max(0, move.partition.log.end_offset - move.copy.copied_offset),
            )
            for name, move in self._moves.items()
            if move.path == path and self._replicas.shown_directory_of(move.partition) != path
        ]

    def start(self, topic: str, index: int, path: str) -> None:
        """Begin to move a partition to the directory at `path`; to where it is: give up its move.

        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if self._closed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping")
        partition = self._replicas.replica(topic, index)
        copy = self._replicas.begin_move(partition, path)
        before = self._moves.get(partition.name)
        if before is not None:
            if before.path == path and before.partition is partition:
                return
            del self._moves[partition.name]
            before.copy.stop()
        if copy is None:
            return
        move = _Move(partition, path, copy)
        self._moves[partition.name] = move
        move.task = asyncio.get_running_loop().create_task(self._run(move))

    async def close(self) -> None:
        """Abort all moves, except those that are finishing, and wait until they have ended."""
        self._closed = True
        tasks = []
        for move in self._moves.values():
            move.copy.stop()
            if move.task is not None:
                tasks.append(move.task)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, move: _Move) -> None:
        name = move.partition.name
        try:
            async with self._turns:
                await self._offload.run(move.copy.begin)
                await self._copy(move)
                await self._replicas.finish_move(move.partition, move.copy)
        except (OSError, KafkaError) as error:
            _log.warning("move_given_up", partition=name, path=move.path, reason=str(error))
            await self._replicas.directories.give_up_move(move.copy)
        except Exception:  # noqa: BLE001 - the root of a task
            _log.exception("move_failed", partition=name, path=move.path)
        finally:
            if self._moves.get(name) is move:
                del self._moves[name]

    async def _copy(self, move: _Move) -> None:
        for _ in range(_PASSES_MAX):
            if move.partition.retired is not None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition was deleted")
            copied = await self._offload.run(move.copy.run, move.partition.log.end_offset)
            if copied <= _LITTLE_BYTES:
                return
