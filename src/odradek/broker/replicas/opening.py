"""The logs of this broker's replicas come and go: several are opened at a time, on other threads, and those that are taken away
are deleted. One that cannot be opened is offline, and leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from odradek.broker.replicas.loss_evidence import ACCEPTED, ALL_THERE, Judgement, judged, note_after
from odradek.broker.replicas.replica_registry import HeldReplicas
from odradek.broker.replicas.roles import ReplicaRoles
from odradek.cluster.image import PartitionImage, TopicImage
from odradek.config.topic import LogConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Flushing, Membership, Partition
from odradek.storage.directories.log_manager import LogDirectories
from odradek.storage.log.log import Log
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
    is_loss_accepted: bool = False

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
        self.findings = ALL_THERE
        """About this broker's disks, at its start."""

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
        how = self._judged(wanted, is_new=is_new)
        try:
            log = await self._directories.open_log(
                name,
                topic_id,
                wanted.config,
                is_new=is_new,
                repairable=how.repairable,
                lack=how.lack,
                if_absent=how.if_absent,
            )
        except KafkaError as error:
            self._held.not_opened(name, topic_id, error, is_new=is_new)
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

    def _judged(self, wanted: Wanted, *, is_new: bool) -> Judgement:
        if wanted.is_loss_accepted:
            return ACCEPTED
        return judged(
            wanted.topic.partitions[wanted.index],
            self._held.me,
            is_new=is_new,
            was_held=self._directories.was_held(wanted.name, wanted.topic.topic_id),
            is_on_older=self._directories.home_of(wanted.name) in self.findings.older,
            findings=self.findings,
        )

    async def settle_lacks(self) -> None:
        """Notes about what logs lack follow the image, durably."""
        for name, note in list(self._directories.lack_notes.items()):
            partition = self._held.partitions.get(name)
            state = None if partition is None else self._held.assigned(partition.topic_id, name.partition)
            if partition is None or state is None:
                continue
            counts = self._held.me in (*state.isr, *state.eligible)
            after = note_after(note, counts=counts, leads=partition.is_leader)
            if after != note:
                try:
                    await self._directories.settle_lack(partition.log, after)
                except KafkaError as error:  # the note says too much, and never too little
                    _log.warning("lack_note_not_written", partition=name, reason=error.message)

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
