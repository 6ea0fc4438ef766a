"""The controller's view of brokers: who is in service, and what follows for partitions when that changes.

A broker that registers is taken into service with its first report, for only then is known which of its
replicas are damaged. If it comes back, whatever its former self led or was in sync with is decided first, as
if that had died (the registry may not know). A broker that was in service under the last controller stays in
service; it has limited time to report. A broker without a registration is dead; a registered broker that
sends no report is treated as if it was leaving.

Every look at the partitions is of all of them, so a change that could not be committed is made up for by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from odradek.cluster.availability import (
    Liveness,
    LogEnd,
    ReplicaAvailability,
    TopicRules,
    relieved_brokers,
    rules_of,
    without,
)
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.heartbeat_monitor import HeartbeatMonitor
from odradek.cluster.controller.topics import with_fewer_eligible
from odradek.cluster.documents import BROKER
from odradek.cluster.elections import settled, was_elected_uncleanly, without_damaged
from odradek.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.cluster.registration import Registration
from odradek.cluster.sync import BrokerReport, ReplicaId
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.java_numbers import is_digits
from odradek.runtime.ports import Clock
from odradek.telemetry import events

_NO_EPOCH: Final = -1
_AWAITED_SECONDS: Final = 5.0
"""How long a broker that did not report to this controller yet keeps its place."""
_CORDONED: Final = "odradek.broker.cordoned"
_log = events.get("cluster")
_NAMED_MAX: Final = 5
Step = Callable[[PartitionImage, TopicRules, ReplicaAvailability, ReplicaId], PartitionImage]


@dataclass(slots=True, kw_only=True)
class _BrokerEntry:
    """The controller's state of one registered broker."""

    registration: Registration
    epoch: int
    awaited_until: float = 0.0
    """Until then it stays in service, although it did not report yet: it may have been in service before this
    controller was."""
    is_in_service: bool = False
    is_leaving: bool = False
    is_silent: bool = False
    """It says nothing: see `heartbeat_monitor.py`."""
    offline: frozenset[ReplicaId] = frozenset()
    lost: frozenset[ReplicaId] = frozenset()
    lacking: frozenset[ReplicaId] = frozenset()
    uncertain: Mapping[ReplicaId, LogEnd] = field(default_factory=dict)
    full: frozenset[ReplicaId] = frozenset()
    slow: frozenset[ReplicaId] = frozenset()
    has_space: bool = True
    slow_since: float = inf
    """The time of its first report of a slow disk; infinity without one."""
    settled_damage: frozenset[ReplicaId] = frozenset()
    """Replicas that it reports as damaged, and that were handled."""

    def image(self, cordons: Mapping[BrokerId, bool]) -> BrokerImage:
        image = self.registration.image(self.epoch)
        is_cordoned = cordons.get(image.broker_id, image.is_cordoned)
        return replace(image, is_leaving=self.is_leaving or self.is_silent, is_cordoned=is_cordoned)


class BrokerChanges:
    """The controller's changes that follow from brokers that come, go or report. All steps run within `Changes.alone`; see
    `Controller` for what each does, and raises."""

    def __init__(self, changes: Changes, clock: Clock, defaults: TopicRules) -> None:
        self._changes = changes
        self._clock = clock
        self._defaults = defaults
        self._known: dict[BrokerId, _BrokerEntry] = {}
        self._in_service_before = {broker.broker_id: broker for broker in changes.image.brokers}
        self._has_looked = False
        self._silence = HeartbeatMonitor()
        self._down: dict[BrokerId, Registration] = {}
        self.dead_since: dict[BrokerId, float] = {}
        """Replicas' brokers that do not live, as far back as this controller knows."""

    # -- what is known

    def liveness(self) -> Liveness:
        now = self._now()
        awaited = frozenset(
            broker
            for broker, known in self._known.items()
            if not known.is_in_service and now < known.awaited_until
        )
        cordoned = cordons(self._changes.image)
        return Liveness(
            brokers={
                broker_id: known.image(cordoned)
                for broker_id, known in self._known.items()
                if known.is_in_service
            },
            awaited=awaited,
            offline={broker_id: known.offline for broker_id, known in self._known.items() if known.offline},
            lost={broker_id: known.lost for broker_id, known in self._known.items() if known.lost},
            lacking={broker_id: known.lacking for broker_id, known in self._known.items() if known.lacking},
            uncertain={
                broker_id: known.uncertain for broker_id, known in self._known.items() if known.uncertain
            },
            full={broker_id: known.full for broker_id, known in self._known.items() if known.full},
            slow={broker_id: known.slow for broker_id, known in self._known.items() if known.slow},
            relieved=self._relieved(),
        )

    def _relieved(self) -> frozenset[BrokerId]:
        serving = {broker_id: known for broker_id, known in self._known.items() if known.is_in_service}
        slow_since = {broker_id: known.slow_since for broker_id, known in serving.items() if known.slow}
        return relieved_brokers(slow_since, len(serving))

    def without_space(self) -> frozenset[BrokerId]:
        """Returns the brokers in service whose disks are all full: others hold new replicas, if they can."""
        return frozenset(
            broker_id
            for broker_id, known in self._known.items()
            if known.is_in_service and not known.has_space
        )

    def absent(self) -> list[BrokerImage]:
        """Returns the brokers of the cluster that are not in service: they may hold replicas, which join when they come
        back."""
        cordoned = cordons(self._changes.image)
        waiting = {
            broker_id: known.image(cordoned)
            for broker_id, known in self._known.items()
            if not known.is_in_service
        }
        down = {
            broker_id: replace(image, is_cordoned=cordoned.get(broker_id, image.is_cordoned))
            for broker_id, registration in self._down.items()
            if (image := registration.image(_NO_EPOCH)) and broker_id not in self._known
        }
        return [{**down, **waiting}[broker_id] for broker_id in sorted(down.keys() | waiting.keys())]

    def rules_of(self, topic: TopicImage) -> TopicRules:
        return rules_of(self._changes.image, topic, self._defaults)

    def check_epoch(self, broker: BrokerId, epoch: int) -> None:
        """Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH unless this incarnation is the one that is registered."""
        known = self._known.get(broker)
        if known is None:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not registered")
        if known.epoch != epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} has epoch {known.epoch}, not {epoch}"
            )

    def is_settled(self, report: BrokerReport) -> bool:
        """Returns whether a report contains nothing that requires an action."""
        known = self._known.get(report.broker_id)
        return (
            known is not None
            and known.epoch == report.broker_epoch
            and known.is_in_service
            and not known.is_silent
            and known.is_leaving == report.is_leaving
            and (known.offline, known.lost) == (report.offline, report.lost)
            and (known.lacking, known.uncertain) == (report.lacking, report.uncertain)
            and (known.full, known.slow, known.has_space) == (report.full, report.slow, report.has_space)
            and known.settled_damage == report.damaged
        )

    # -- changes

    async def refresh(self) -> None:
        """Reads the registrations, and adapts the partitions."""
        present = await self._changes.store.registered()
        self._down = await self._changes.store.registered_before(present)
        gone = [
            broker
            for broker, known in self._known.items()
            if broker not in present or present[broker][1] != known.epoch
        ]
        for broker in gone:
            known = self._known.pop(broker)
            self._changes.publication.forget(broker)
            _log.warning("broker_gone", broker=broker, epoch=known.epoch)
        for broker, (registration, epoch) in present.items():
            self._see(broker, registration, epoch)
        for broker, before in self._in_service_before.items():
            _log.warning("broker_gone", broker=broker, epoch=before.epoch)
        self._in_service_before = {}
        if not self._has_looked:
            await self._review_eligible()
        self._has_looked = True
        self._note_dead()
        await self.settle("brokers changed")

    async def forget(self, broker: BrokerId) -> bool:
        """Forgets a broker that is down, because an operator expects that it will not come back; returns
        False when it is unknown."""
        if not await self._changes.store.forget_broker(broker):
            return False
        self._down.pop(broker, None)
        _log.info("broker_unregistered", broker=broker)
        return True

    async def hear(self, report: BrokerReport) -> None:
        """Handles a broker's report about itself."""
        broker = report.broker_id
        if broker not in self._known or self._known[broker].epoch != report.broker_epoch:
            await self.refresh()
        self.check_epoch(broker, report.broker_epoch)
        before = self._known[broker]
        known = self._known[broker] = replace(
            before,
            is_in_service=True,
            is_leaving=report.is_leaving,
            is_silent=False,
            offline=report.offline,
            lost=report.lost,
            lacking=report.lacking,
            uncertain=report.uncertain,
            full=report.full,
            slow=report.slow,
            has_space=report.has_space,
            slow_since=min(before.slow_since, self._now()) if report.slow else inf,
        )
        comes_back = not before.is_in_service and report.controller_epoch < 0
        damaged = report.damaged - known.settled_damage

        def follow(
            partition: PartitionImage,
            rules: TopicRules,
            availability: ReplicaAvailability,
            replica: ReplicaId,
        ) -> PartitionImage:
            if comes_back:  # its former self is dead
                partition = settled(partition, without(availability, frozenset([broker])), rules)
            if replica in damaged:
                partition = without_damaged(partition, broker, availability, rules)
                _log.warning("damaged_replica", broker=broker, replica=replica, kept=broker in partition.isr)
            return settled(partition, availability, rules)

        try:
            held_by = broker if comes_back else None
            await self._change_partitions("a broker's report", follow, held_by=held_by, among=damaged)
        except KafkaError:
            self._known[broker] = before  # its report had no effect: let it report again
            raise
        known.settled_damage = report.damaged
        for condition, now, then in (
            ("full", report.full, before.full),
            ("slow", report.slow, before.slow),
        ):
            if bool(now) != bool(then):
                _log.warning(
                    "broker_disk", broker=broker, condition=condition, replicas=len(now), over=not now
                )
        if not before.is_in_service:
            _log.info("broker_in_service", broker=broker, epoch=known.epoch, came_back=comes_back)
        if known.is_leaving and not before.is_leaving:
            _log.info("broker_leaving", broker=broker, epoch=known.epoch)

    def heard(self, report: BrokerReport) -> None:
        """Notes a broker's sign of life."""
        known = self._known.get(report.broker_id)
        if known is not None and known.epoch == report.broker_epoch:
            self._silence.heard(report.broker_id)

    def newly_silent(self, limit_s: float) -> list[BrokerId]:
        """Returns the brokers that have become silent. Call it about once a second."""
        serving = [broker for broker, known in self._known.items() if known.is_in_service]
        silent = self._silence.silent_brokers(serving, self._now(), limit_s)
        return [broker for broker in silent if not self._known[broker].is_silent]

    async def doubt(self, brokers: list[BrokerId], limit_s: float) -> None:
        """Gives the partitions of silent brokers other leaders until the brokers are heard again."""
        doubted = [
            known
            for broker in brokers
            if (known := self._known.get(broker)) is not None and self._silence.is_silent(broker, limit_s)
        ]
        for known in doubted:
            known.is_silent = True
            _log.warning("broker_is_silent", broker=known.registration.broker_id, epoch=known.epoch)
        try:
            await self.settle("brokers are silent")
        except KafkaError:
            for known in doubted:  # it is tried again
                known.is_silent = False
            raise

    async def settle(self, reason: str) -> None:
        """Elects where a leader, or a member of an ISR, is out of service, or where a broker came back that
        may lead.

        Moves that waited for someone who may lead end, too.
        """
        await self._change_partitions(
            reason, lambda partition, rules, availability, _: settled(partition, availability, rules)
        )

    async def settings_changed(self) -> None:
        """Handles changed settings: a broker may be cordoned now, or a topic allow an unclean leader."""
        await self.settle("settings changed")

    def needs_another_look(self) -> bool:
        """Returns whether the controller waits for brokers that keep their place for a limited time."""
        return any(not known.is_in_service for known in self._known.values())

    # -- inside

    async def _review_eligible(self) -> None:
        """Reviews eligible replicas: the last controller may have used another `min.insync.replicas`, and leaders wait while
        any replica is eligible."""
        reviewed = [
            with_fewer_eligible(topic, self.rules_of(topic))
            for topic in self._changes.image.topics.values()
            if any(partition.eligible for partition in topic.partitions)
        ]
        changed = [topic for topic in reviewed if topic != self._changes.image.topics[topic.name]]
        if changed:
            await self._changes.commit_topics(changed)

    def _see(self, broker: BrokerId, registration: Registration, epoch: int) -> None:
        known = self._known.get(broker)
        if known is None:
            known = self._known[broker] = _BrokerEntry(registration=registration, epoch=epoch)
            before = self._in_service_before.pop(broker, None)
            if before is not None and before.epoch == epoch:
                known.is_in_service, known.is_leaving = True, before.is_leaving
            else:
                _log.info("broker_registered", broker=broker, epoch=epoch)
                if before is None and not self._has_looked:
                    known.awaited_until = self._now() + _AWAITED_SECONDS
        known.registration = registration

    def _note_dead(self) -> None:
        holders = {
            broker
            for topic in self._changes.image.topics.values()
            for partition in topic.partitions
            for broker in partition.replicas
        }
        now = self._now()
        self.dead_since = {
            broker: self.dead_since.get(broker, now) for broker in sorted(holders - self._known.keys())
        }

    async def _change_partitions(
        self,
        reason: str,
        step: Step,
        *,
        held_by: BrokerId | None = None,
        among: frozenset[ReplicaId] = frozenset(),
    ) -> None:
        """Takes each partition one step further, and commits the result together with the brokers in service.

        A steady partition has no next step, unless this broker holds a replica of it, or it is `among` those.
        """
        liveness = self.liveness()
        changed = list(self._stepped(liveness, step, held_by=held_by, among=among))
        brokers = tuple(liveness.brokers[broker] for broker in sorted(liveness.brokers))
        before = self._changes.image

        def finish(image: ClusterImage) -> ClusterImage:
            return image if image.brokers == brokers else image.with_brokers(brokers)

        await self._changes.commit_topics(changed, finish=finish)
        _log_elections(reason, before, changed)

    def _stepped(
        self, liveness: Liveness, step: Step, *, held_by: BrokerId | None, among: frozenset[ReplicaId]
    ) -> Iterator[TopicImage]:
        usual = liveness.availability()
        special = liveness.special_replicas() | among
        for topic in self._changes.image.topics.values():
            rules: TopicRules | None = None
            steps: dict[int, PartitionImage] = {}
            for index, partition in enumerate(topic.partitions):
                replica = (topic.topic_id, index)
                is_special = bool(special) and replica in special
                is_held = held_by is not None and held_by in partition.replicas
                if not (is_held or is_special) and _is_steady(partition, usual):
                    continue
                rules = rules or self.rules_of(topic)
                availability = liveness.standing_for(*replica) if is_special else usual
                after = step(partition, rules, availability, replica)
                if after is not partition:
                    steps[index] = after
            if steps:
                yield with_partitions(topic, steps)

    def _now(self) -> float:
        return self._clock.monotonic()


def cordons(image: ClusterImage) -> dict[BrokerId, bool]:
    """Returns whether brokers are cordoned, for those with their own dynamic setting."""
    return {
        BrokerId(int(name)): configs[_CORDONED].strip().lower() == "true"
        for (kind, name), configs in image.resource_configs.items()
        if kind == BROKER and is_digits(name) and _CORDONED in configs
    }


def with_partitions(topic: TopicImage, changed: dict[int, PartitionImage]) -> TopicImage:
    """Returns the topic with some of its partitions replaced, by index."""
    partitions = tuple(changed.get(index, partition) for index, partition in enumerate(topic.partitions))
    return replace(topic, partitions=partitions)


def log_completed(name: TopicPartition, before: PartitionImage, after: PartitionImage) -> None:
    """Logs one event if a move ended with this step."""
    if before.is_reassigned and not after.is_reassigned:
        _log.info("reassignment_completed", partition=name, replicas=after.replicas)


def _is_steady(partition: PartitionImage, availability: ReplicaAvailability) -> bool:
    return (
        partition.leader in availability.staying
        and availability.staying.issuperset(partition.isr)
        and not partition.is_reassigned
    )


def _log_elections(reason: str, before: ClusterImage, changed: list[TopicImage]) -> None:
    """Logs one event for all elections of a change, one for partitions without a leader, and one for each unclean leader."""
    elected_count = shrunk_count = 0
    leaderless: list[str] = []
    for topic in changed:
        known = before.topics.get(topic.name, topic)
        for index, (old, after) in enumerate(zip(known.partitions, topic.partitions, strict=True)):
            log_completed(TopicPartition(topic.name, index), old, after)
            shrunk_count += len(after.isr) < len(old.isr)
            if after.leader_epoch == old.leader_epoch:
                continue
            elected_count += 1
            if after.leader == NO_LEADER:
                leaderless.append(f"{topic.name}-{index}")
            elif was_elected_uncleanly(old, after):
                name = f"{topic.name}-{index}"
                _log.error("unclean_leader_elected", partition=name, leader=after.leader, isr=old.isr)
    if elected_count or shrunk_count:
        _log.info("leaders_elected", reason=reason, elected=elected_count, shrunk=shrunk_count)
    if leaderless:
        _log.warning(
            "partitions_without_leader",
            count=len(leaderless),
            first=leaderless[:_NAMED_MAX],
            reason="no replica in sync is alive",
        )
