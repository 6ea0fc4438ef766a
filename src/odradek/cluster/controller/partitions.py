"""The controller's changes of partitions that someone asks for: ISR changes, reassignments, elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from odradek.cluster.controller.brokers import BrokerChanges, log_completed, with_partitions
from odradek.cluster.controller.changes import Changes, SharedChange
from odradek.cluster.elections import settled, with_preferred_leader, with_unclean_leader
from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.cluster.isr_changes import ProposedIsr, changed_isr
from odradek.cluster.reassignment import Reassignment, begun, cancelled, check_target
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.telemetry import events

TopicIdPartition = tuple[UUID, int]
IsrOutcomes = dict[TopicIdPartition, PartitionImage | KafkaError]
_log = events.get("cluster")


@dataclass(frozen=True, slots=True)
class _PartitionRequest:
    """One request of a leader."""

    broker: BrokerId
    epoch: int
    proposals: Mapping[TopicIdPartition, ProposedIsr]


class PartitionChanges:
    """The controller's changes of partitions: ISRs, reassignments, elections. See `Controller` for what each does, and
    raises."""

    def __init__(self, changes: Changes, brokers: BrokerChanges) -> None:
        self._changes = changes
        self._brokers = brokers
        self._isr_requests = SharedChange[_PartitionRequest, IsrOutcomes](changes, self._alter)

    # -- who is in sync

    async def alter_isr(
        self, broker: BrokerId, epoch: int, proposals: Mapping[TopicIdPartition, ProposedIsr]
    ) -> IsrOutcomes:
        """Decides on proposals; those that arrive while a commit is under way share the next one."""
        return await self._isr_requests.submit(_PartitionRequest(broker, epoch, proposals))

    async def _alter(self, requested: Sequence[_PartitionRequest]) -> list[IsrOutcomes | KafkaError]:
        draft = _Draft(self._changes)
        outcomes: list[IsrOutcomes | KafkaError] = []
        for request in requested:
            try:
                outcomes.append(self._decide(request, draft))
            except KafkaError as error:
                outcomes.append(error.as_outcome())
        try:
            await self._changes.commit_topics(draft.topics())
        except KafkaError as error:
            return [
                outcome if isinstance(outcome, KafkaError) else error.as_outcome() for outcome in outcomes
            ]
        return outcomes

    def _decide(self, requested: _PartitionRequest, draft: _Draft) -> IsrOutcomes:
        self._brokers.check_epoch(requested.broker, requested.epoch)
        outcomes: IsrOutcomes = {}
        liveness = self._brokers.liveness()
        for partition_id, proposal in requested.proposals.items():
            try:
                topic, partition = draft.partition(*partition_id)
                availability, rules = liveness.standing_for(*partition_id), self._brokers.rules_of(topic)
                after = changed_isr(
                    partition,
                    proposal,
                    proposer=requested.broker,
                    liveness=liveness,
                    availability=availability,
                    rules=rules,
                )
                if (
                    after.leader not in availability.staying - availability.relieved
                ):  # it could not hand over yet
                    after = settled(after, availability, rules)
                draft.put(partition_id, after)
                log_completed(TopicPartition(topic.name, partition_id[1]), partition, after)
                outcomes[partition_id] = after
            except KafkaError as error:
                outcomes[partition_id] = error.as_outcome()
                _log.warning(
                    "isr_proposal_refused",
                    partition=self._name_of(partition_id),
                    leader=requested.broker,
                    isr=[broker for broker, _ in proposal.isr],
                    code=error.code.name,
                    reason=error.message,
                )
        return outcomes

    def _name_of(self, partition_id: TopicIdPartition) -> str:
        topic = self._changes.image.topics_by_id.get(partition_id[0])
        return f"{partition_id[0] if topic is None else topic.name}-{partition_id[1]}"

    # -- which brokers hold it

    async def reassign(
        self, wanted: Sequence[Reassignment], *, allow_factor_change: bool
    ) -> list[KafkaError | None]:
        return await self._changes.applied(
            lambda: self._reassign(wanted, allow_factor_change=allow_factor_change)
        )

    async def _reassign(
        self, wanted: Sequence[Reassignment], *, allow_factor_change: bool
    ) -> list[KafkaError | None]:
        draft = _Draft(self._changes)
        liveness = self._brokers.liveness()
        outcomes: list[KafkaError | None] = []
        for reassignment in wanted:
            try:
                topic, partition = draft.named(reassignment.topic, reassignment.partition)
                availability = liveness.standing_for(topic.topic_id, reassignment.partition)
                if reassignment.replicas is None:
                    after = cancelled(partition, availability)
                else:
                    check_target(
                        partition,
                        reassignment.replicas,
                        frozenset(liveness.brokers),
                        allow_factor_change=allow_factor_change,
                    )
                    after = begun(partition, reassignment.replicas, availability)
                after = settled(after, availability, self._brokers.rules_of(topic))
                draft.put((topic.topic_id, reassignment.partition), after)
                outcomes.append(None)
            except KafkaError as error:
                outcomes.append(error.as_outcome())
        try:
            await self._changes.commit_topics(draft.topics())
        except KafkaError as error:
            return [error.as_outcome() if refusal is None else refusal for refusal in outcomes]
        for reassignment, outcome in zip(wanted, outcomes, strict=True):
            if outcome is None:
                _log.info(
                    "reassignment_begun" if reassignment.replicas is not None else "reassignment_cancelled",
                    partition=TopicPartition(reassignment.topic, reassignment.partition),
                    replicas=reassignment.replicas,
                )
        return outcomes

    # -- who leads it

    async def elect(
        self, wanted: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        return await self._changes.applied(lambda: self._elect(wanted, unclean=unclean))

    async def _elect(
        self, wanted: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        draft = _Draft(self._changes)
        step = self._unclean if unclean else self._preferred
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for name in self._all() if wanted is None else wanted:
            try:
                topic, partition = draft.named(name.topic, name.partition)
                draft.put((topic.topic_id, name.partition), step(topic, name, partition))
                outcomes[name] = None
            except KafkaError as error:
                outcomes[name] = error.as_outcome()
        try:
            await self._changes.commit_topics(draft.topics())
        except KafkaError as error:
            return {
                name: error.as_outcome() if outcome is None else outcome for name, outcome in outcomes.items()
            }
        elected = [name for name, outcome in outcomes.items() if outcome is None]
        if elected:
            report = _log.error if unclean else _log.info
            report("leaders_elected_on_demand", unclean=unclean, elected=len(elected), first=elected[0])
        return outcomes

    def _all(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, index)
            for topic in self._changes.image.topics.values()
            for index in range(len(topic.partitions))
        ]

    def _preferred(
        self, topic: TopicImage, name: TopicPartition, partition: PartitionImage
    ) -> PartitionImage:
        preferred = partition.replicas[0]
        if partition.leader == preferred:
            raise KafkaError(
                ErrorCode.ELECTION_NOT_NEEDED, f"the preferred replica, {preferred}, leads {name} already"
            )
        availability = self._brokers.liveness().standing_for(topic.topic_id, name.partition)
        after = with_preferred_leader(partition, availability)
        if after is partition:
            raise KafkaError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"the preferred replica of {name}, {preferred}, is not in sync, or cannot lead now",
            )
        return after

    def _unclean(self, topic: TopicImage, name: TopicPartition, partition: PartitionImage) -> PartitionImage:
        if partition.leader != NO_LEADER:
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"{name} has a leader, {partition.leader}")
        availability = self._brokers.liveness().standing_for(topic.topic_id, name.partition)
        after = with_unclean_leader(partition, availability)
        if after is partition:
            raise KafkaError(
                ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name} is there to lead it"
            )
        return after


class _Draft:
    """Partitions as they become in the course of one change."""

    def __init__(self, changes: Changes) -> None:
        self._image = changes.image
        self._changed: dict[UUID, dict[int, PartitionImage]] = {}

    def partition(self, topic_id: UUID, index: int) -> tuple[TopicImage, PartitionImage]:
        """Returns a partition and its topic. Raises UNKNOWN_TOPIC_ID or UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
        return topic, self._of(topic, index)

    def named(self, name: str, index: int) -> tuple[TopicImage, PartitionImage]:
        """Raises UNKNOWN_TOPIC_OR_PARTITION when there is none."""
        topic = self._image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        return topic, self._of(topic, index)

    def put(self, partition_id: TopicIdPartition, after: PartitionImage) -> None:
        self._changed.setdefault(partition_id[0], {})[partition_id[1]] = after

    def topics(self) -> list[TopicImage]:
        """Returns the topics whose partitions have changed."""
        changed = []
        for topic_id, partitions in self._changed.items():
            topic = self._image.topics_by_id[topic_id]
            if any(topic.partitions[index] is not after for index, after in partitions.items()):
                changed.append(with_partitions(topic, partitions))
        return changed

    def _of(self, topic: TopicImage, index: int) -> PartitionImage:
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}"
            )
        return self._changed.get(topic.topic_id, {}).get(index, topic.partitions[index])
