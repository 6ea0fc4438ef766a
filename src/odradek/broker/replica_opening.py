"""The logs of this broker's replicas come and go: several are opened at a time, on other threads, and those that are taken away
are deleted. One that cannot be opened is offline, and leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from odradek.broker.held_replicas import HeldReplicas
from odradek.broker.replica_roles import ReplicaRoles
from odradek.cluster.image import PartitionImage, TopicImage
from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Flushing, Membership, Partition
from odradek.storage.directories import LogDirectories
from odradek.storage.log import Log
from odradek.telemetry import events

_log = events.get("broker")
_AT_ONCE: Final = 8
_MADE_AT_ONCE: Final = 64
"""They share their syncs."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A log to be opened, or made."""

    topic: TopicImage
    index: int
    config: LogConfig

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)


class ReplicaOpening:
    """Used on the event loop only, by one at a time."""

    def __init__(
        self,
        directories: LogDirectories,
        held: HeldReplicas,
        roles: ReplicaRoles,
        flushing: Flushing,
        member: Membership | None,
        assume: Callable[[Partition, PartitionImage], None],
    ) -> None:
        """`assume` gives a partition its role, and takes it offline where that fails."""
        self._directories = directories
        self._held = held
        self._assume = assume
        self._roles = roles
        self._flushing = flushing
        self._member = member

    async def open(self, wanted: Iterable[Wanted], *, are_new: bool) -> None:
        """Open each, and give it its role as soon as it is open. `are_new`: it cannot be on a disk that is offline."""
        queue = deque(wanted)

        async def work() -> None:
            while queue:
                await self._open_one(queue.popleft(), is_new=are_new)

        if len(queue) == 1:
            await work()
            return
        at_once = min(_MADE_AT_ONCE if are_new else _AT_ONCE, len(queue))
        outcomes = await asyncio.gather(*(work() for _ in range(at_once)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _open_one(self, wanted: Wanted, *, is_new: bool) -> None:
        name, topic_id = wanted.name, wanted.topic.topic_id
        try:
            log = await self._directories.open_log(
                name, topic_id, wanted.config, is_new=is_new, repairable=self._is_dispensable(wanted)
            )
        except KafkaError as error:
            self._held.not_opened(name, topic_id, error)
            return
        self.take_up(
            Partition(
                name,
                topic_id,
                log,
                wanted.topic.partitions[wanted.index].leader_epoch,
                self._flushing,
                member=self._member,
                high_watermark=self._directories.checkpointed_high_watermark(name),
            )
        )

    def _is_dispensable(self, wanted: Wanted) -> bool:
        """Whether others have what this replica may have lost: then it may go on with what is left, and get the rest."""
        state = wanted.topic.partitions[wanted.index]
        safe = {*state.isr, *state.eligible}
        return bool(safe - {self._held.me}) or (bool(safe) and self._held.me not in safe)

    def succeed(self, partition: Partition, log: Log) -> None:
        """`log` is what the partition goes on with."""
        self.take_up(
            Partition(
                partition.name,
                partition.topic_id,
                log,
                partition.leader_epoch,
                self._flushing,
                member=self._member,
                high_watermark=partition.high_watermark,
            )
        )

    def take_up(self, partition: Partition) -> None:
        self._held.add(partition)
        state = self._held.assigned(partition.topic_id, partition.name.partition)
        if state is not None and self._held.has_roles:
            self._assume(partition, state)

    async def remove(self, topic: TopicImage, index: int, reason: KafkaError) -> None:
        """Retire the replica, if it is open, and delete its log."""
        name = TopicPartition(topic.name, index)
        self._held.forget(name, topic.topic_id)
        partition = self._held.open_by_id(topic.topic_id, index)
        if partition is not None:
            self.retire(partition, reason)
        try:
            await self._directories.delete_log(name)
        except KafkaError as error:
            _log.error("partition_not_deleted", partition=name, reason=error.message)

    def retire(self, partition: Partition, reason: KafkaError) -> None:
        """It ends here; its log stays."""
        self._held.remove(partition)
        self._roles.drop(partition)
        partition.retire(reason)
