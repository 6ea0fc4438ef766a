"""The logs of this broker's replicas come and go. For each partition there is one answer to "what is the next step towards the
newest image?": delete a log, open one, or nothing. It is asked again after each step, for the image may be another by then.

One that cannot be opened is offline, and leaves the others alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from odradek.broker.cluster.loss_evidence import (
    ACCEPTED,
    ALL_THERE,
    LossFinding,
    is_loss_accepted,
    judged,
    note_after,
)
from odradek.broker.replicas.replica_registry import ReplicaRegistry
from odradek.broker.replicas.roles import ReplicaRoles
from odradek.cluster.image import PartitionImage, TopicImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Flushing, Partition, ReplicationContext
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files.lack_notes import LackNote
from odradek.storage.log.log import Log
from odradek.telemetry import events

_log = events.get("broker")


@dataclass(frozen=True, slots=True)
class LogOpenRequest:
    """A log to be opened, or made. `is_new`: it cannot be on a disk that is offline."""

    topic: TopicImage
    index: int
    is_new: bool
    is_loss_accepted: bool = False

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.index)


class LogRemoval:
    """A log to be deleted."""


class ReplicaOpening:
    """Opens and deletes the logs of this broker's replicas, one step after another, as the newest image requires. Used on
    the event loop only; for each partition by one at a time (`PartitionLanes`)."""

    def __init__(
        self,
        directories: LogManager,
        registry: ReplicaRegistry,
        roles: ReplicaRoles,
        flushing: Flushing,
        member: ReplicationContext | None,
        *,
        config_of: Callable[[TopicImage], LogConfig],
        assume: Callable[[Partition, PartitionImage], None],
    ) -> None:
        """`config_of` gives a topic's settings as they are now. `assume` gives a partition its role, and takes it offline where
        that fails."""
        self._directories = directories
        self._registry = registry
        self._config_of = config_of
        self._assume = assume
        self._roles = roles
        self._flushing = flushing
        self._member = member
        self._doomed: dict[TopicPartition, None] = {}
        """Their replicas ended, and their logs must be deleted."""
        self._again: dict[TopicPartition, bool] = {}
        """Offline replicas to try again: True in any case, False because the image changed."""
        self._uncounted: dict[Log, None] = {}
        """Logs with a note on which the image did not count once; the disk may not know that."""
        self.are_new = False
        """What the image brings came to this broker in this life."""
        self.is_closing = False
        """Whether the broker is closing: then no replica is opened."""
        self.findings = ALL_THERE
        """About this broker's disks, at its start."""

    # -- the next step

    def retry_offline(self, name: TopicPartition, *, at_any_rate: bool = False) -> None:
        """Lets an offline replica be opened again."""
        self._again[name] = at_any_rate or self._again.get(name, False)

    def cancel_retry(self, name: TopicPartition) -> None:
        self._again.pop(name, None)

    def next_step(self, name: TopicPartition) -> LogOpenRequest | LogRemoval | None:
        """Returns the step that the newest image requires; None for no step."""
        if name in self._doomed:
            return LogRemoval()
        topic = self._registry.placed(name)
        partition = self._registry.partitions.get(name)
        present = partition.topic_id if partition is not None else self._registry.away_id(name)
        if present is not None and (topic is None or topic.topic_id != present):
            return LogRemoval()
        if topic is None or partition is not None or self.is_closing:
            return None
        if present is None:
            return LogOpenRequest(topic, name.partition, self.are_new)
        return self._reopening(topic, name)

    def _reopening(self, topic: TopicImage, name: TopicPartition) -> LogOpenRequest | None:
        at_any_rate = self._again.get(name)
        if at_any_rate is None:
            return None
        if (is_new := self._registry.waits_to_be_opened(name)) is not None and at_any_rate:
            return LogOpenRequest(topic, name.partition, is_new)
        if not self._registry.is_lost(name, topic.topic_id):
            return None
        state = topic.partitions[name.partition]
        if self._registry.me not in (*state.isr, *state.eligible):  # the cluster does not need it
            return LogOpenRequest(topic, name.partition, is_new=False)
        if is_loss_accepted(state, self._registry.me):
            return LogOpenRequest(topic, name.partition, is_new=False, is_loss_accepted=True)
        return None

    async def settle(self, name: TopicPartition) -> None:
        """Take one step after another, until the newest image asks for nothing more."""
        while (step := self.next_step(name)) is not None:
            if isinstance(step, LogOpenRequest):
                self._again.pop(name, None)
                await self._open(step)
            else:
                await self._remove(name)
        self.cancel_retry(name)
        await self.settle_lack(name)

    # -- opening

    async def _open(self, wanted: LogOpenRequest) -> None:
        name, topic_id, is_new = wanted.name, wanted.topic.topic_id, wanted.is_new
        if wanted.is_loss_accepted:
            _log.error("loss_accepted", partition=name)
        how = self._judged(wanted)
        try:
            log = await self._directories.open_log(
                name,
                topic_id,
                self._config_of(wanted.topic),
                is_new=is_new,
                repairable=how.repairable,
                lack=how.lack,
                if_absent=how.if_absent,
                is_counted_on=how.is_counted_on,
                is_uncertain=how.is_uncertain,
            )
        except KafkaError as error:
            self._registry.not_opened(name, topic_id, error, is_new=is_new)
            return
        self.apply_newest_image(
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

    def _judged(self, wanted: LogOpenRequest) -> LossFinding:
        if wanted.is_loss_accepted:
            return ACCEPTED
        return judged(
            wanted.topic.partitions[wanted.index],
            self._registry.me,
            is_new=wanted.is_new,
            was_held=self._directories.was_held(wanted.name, wanted.topic.topic_id),
            forgot=not self._config_of(wanted.topic).flush_before_ack
            and self._directories.may_have_forgotten(wanted.name),
            is_on_older=self._directories.log_directory_of(wanted.name) in self.findings.older,
            findings=self.findings,
        )

    def succeed(self, partition: Partition, log: Log) -> None:
        """Replaces a partition by one with the same state on another log, such as the copy of a move."""
        self.apply_newest_image(
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

    def apply_newest_image(self, partition: Partition) -> None:
        """Applies settings and role of the newest image, whatever they were when the log's opening began."""
        topic = self._registry.topic(partition.topic_id)
        if topic is not None and partition.config != (config := self._config_of(topic)):
            partition.reconfigure(config)
        self._registry.add(partition)
        state = self._registry.assigned(partition.topic_id, partition.name.partition)
        if state is not None and self._registry.has_roles:
            self._assume(partition, state)

    # -- what a log lacks

    def owes_note(self, name: TopicPartition) -> bool:
        """Tells whether the note about a log's missing records differs from what follows from the image."""
        return self._owed_note(name) is not None

    def _owed_note(self, name: TopicPartition) -> tuple[Log, LackNote | None] | None:
        partition = self._registry.partitions.get(name)
        note = partition.log.lack_note if partition is not None else None
        if partition is None or note is None or not self._registry.has_roles:
            return None
        state = self._registry.assigned(partition.topic_id, name.partition)
        if state is None:
            return None
        counts = self._registry.me in (*state.isr, *state.eligible)
        if not counts:
            self._uncounted[partition.log] = None
        was_counted_on = note.is_counted_on and partition.log not in self._uncounted
        seen = replace(note, is_counted_on=was_counted_on)
        after = note_after(seen, counts=counts, leads=partition.is_leader)
        return None if after == note else (partition.log, after)

    async def settle_lack(self, name: TopicPartition) -> None:
        """Makes the note about what a log lacks follow the image, durably."""
        owed = self._owed_note(name)
        if owed is None:
            return
        log, after = owed
        try:
            await self._directories.settle_lack(log, after)
        except KafkaError as error:  # the note names too much, and never too little
            _log.warning("lack_note_not_written", partition=name, reason=error.message)
            return
        if after is None:
            self._uncounted.pop(log, None)

    # -- going away

    def doom(self, name: TopicPartition) -> None:
        """End the replica, if it is open and the newest image has no place for it here. Its log is deleted later."""
        partition = self._registry.partitions.get(name)
        if partition is not None and self._registry.assigned(partition.topic_id, name.partition) is None:
            self._doomed[name] = None
            self.retire(partition, self._why_gone(partition))

    async def _remove(self, name: TopicPartition) -> None:
        self.doom(name)
        self._doomed.pop(name, None)
        self._registry.forget(name)
        try:
            await self._directories.delete_log(name)
        except KafkaError as error:
            _log.error("partition_not_deleted", partition=name, reason=error.message)
        self._directories.remove_deleted_soon()

    def _why_gone(self, partition: Partition) -> KafkaError:
        name = partition.name
        if self._registry.topic(partition.topic_id) is None:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name.topic!r} was deleted")
        return KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"this broker has no replica of {name} any more: others have them now",
        )

    def retire(self, partition: Partition, reason: KafkaError) -> None:
        """Ends the replica on this broker; its log stays."""
        self._registry.remove(partition)
        self._roles.drop(partition)
        self._uncounted.pop(partition.log, None)
        partition.retire(reason)
