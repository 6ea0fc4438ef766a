"""The controller: the one place where topics come, change and go, and where it is decided who leads.

It checks a change against the current image, commits it to the registry, lets the broker apply the next image (open and
remove logs), and only then shows it: what an image shows can be used, and a client that got the answer "created" can produce
at once. One change runs at a time, and once begun it runs to its end, whether or not its asker is still there.

This class is the face; `changes.py` holds the steps that every change takes, and `topics.py`, `settings.py`, `brokers.py`,
`partitions.py` the changes themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from odradek.cluster.controller.brokers import BrokerChanges
from odradek.cluster.controller.changes import Changes
from odradek.cluster.controller.maintenance import HealingPlan, Maintenance, MaintenancePolicy
from odradek.cluster.controller.publishing import Apply, Publication
from odradek.cluster.controller.settings import SettingChanges
from odradek.cluster.controller.store import PRODUCER_ID_BLOCK, ClusterStore
from odradek.cluster.controller.topics import ConfigChange, TopicChanges
from odradek.cluster.documents import BROKER_CONFIGS, RESOURCE_CONFIGS, Stored
from odradek.cluster.image import NO_LEADER, ClusterImage, TopicImage
from odradek.cluster.planning import ClusterDefaults, MorePartitions, TopicSpec
from odradek.cluster.sync import BrokerReport, SyncAnswer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.model.lazy import lazy
from odradek.registry import Registry
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.cluster.controller import partitions
    from odradek.cluster.controller.partitions import IsrOutcomes, PartitionChanges, TopicIdPartition
    from odradek.cluster.isr_changes import ProposedIsr
    from odradek.cluster.reassignment import Reassignment
    from odradek.registry.election import Term
else:
    partitions = lazy("odradek.cluster.controller.partitions")

__all__ = ["PRODUCER_ID_BLOCK", "Controller"]

T = TypeVar("T")
_RETRY_SECONDS: Final = 1.0
_LISTEN_SECONDS: Final = 1.0
_SEEN_SECONDS: Final = 15.0
"""Longer than a session lasts by default."""
_VERSIONS_PER_EPOCH: Final = 2**32
_log = events.get("cluster")


class Controller:
    """The controller of a cluster: it checks every change of topics, partitions and settings, commits it, and publishes the
    next image. Make it with `load`, and let it take office with `begin`.

    Every change raises KafkaError where it is refused, KAFKA_STORAGE_ERROR when the registry cannot write it, NOT_CONTROLLER
    when this broker is not the controller any more."""

    def __init__(
        self,
        store: ClusterStore,
        publication: Publication,
        entropy: Entropy,
        defaults: ClusterDefaults,
        clock: Clock,
        me: BrokerId,
    ) -> None:
        self._me = me
        self._store = store
        self._publication = publication
        self.changes = Changes(store, publication)
        self._topics = TopicChanges(
            self.changes,
            entropy,
            defaults,
            me,
            absent=lambda: self.brokers.absent(),
            full=lambda: self.brokers.without_space(),
        )
        self._settings = SettingChanges(self.changes, defaults.rules)
        self.brokers = BrokerChanges(self.changes, clock, defaults.rules)
        self._partition_changes: PartitionChanges | None = None
        self._looking_again: asyncio.Task[None] | None = None
        self._maintenance: Maintenance | None = None
        self._maintaining: asyncio.Task[None] | None = None
        self._policy: Callable[[], MaintenancePolicy] | None = None
        self._listening: asyncio.Task[None] | None = None
        """The task that listens to other brokers; None until the first question of one."""

    @classmethod
    async def load(
        cls,
        registry: Registry,
        entropy: Entropy,
        defaults: ClusterDefaults,
        *,
        cluster_id: str,
        broker_id: BrokerId,
        apply: Apply,
        term: Term,
        clock: Clock,
        known: ClusterImage | None = None,
        on_deposed: Callable[[], None] = lambda: None,
        maintenance: Callable[[], MaintenancePolicy] | None = None,
    ) -> Controller:
        """Loads the state from the registry. `apply` is not called for it: the caller opens the logs in `image`.

        `known` is the image that the broker ran on so far, whose brokers go on as they were. `on_deposed` is
        called when it turns out that the term is over. `maintenance` configures what the controller does
        unasked. RegistryError when the registry cannot be read, NOT_CONTROLLER when the term is over already.
        """
        store = ClusterStore(registry, term, on_deposed)
        empty = ClusterImage(
            version=0,
            cluster_id=cluster_id,
            controller_id=broker_id,
            brokers=() if known is None else known.brokers,
            topics={} if known is None else known.topics,
            topics_by_id={},
            controller_epoch=term.epoch,
        )
        image = await store.load(empty)
        image = replace(image, version=term.epoch * _VERSIONS_PER_EPOCH + 1)
        controller = cls(store, Publication(image, apply), entropy, defaults, clock, broker_id)
        if maintenance is not None:
            controller._keep_up(clock, maintenance)
        return controller

    @property
    def image(self) -> ClusterImage:
        """The image that the local broker has applied."""
        return self._publication.applied

    @property
    def latest(self) -> ClusterImage:
        """The committed image; the local broker may still be about to apply it."""
        return self._publication.latest

    @property
    def epoch(self) -> int:
        """Returns the epoch of the term in office."""
        return self._store.epoch

    @property
    def is_deposed(self) -> bool:
        """True if this side knows that the term is over."""
        return self._store.is_deposed

    async def close(self) -> None:
        """Waits for the changes under way and refuses all later ones."""
        for task in (self._looking_again, self._maintaining, self._listening):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._publication.end()
        await self.changes.close()
        await self._publication.close()

    def depose(self) -> None:
        """Stops acting, and refuses the waiters: the term is over."""
        self._store.depose()
        self._publication.end()

    async def confirm_office(self) -> None:
        """Raises NOT_CONTROLLER when the term is over according to the registry, KAFKA_STORAGE_ERROR when it
        cannot be asked."""
        try:
            await self.changes.alone(self._store.confirm_term)
        finally:
            if self._store.is_deposed:
                self._publication.end()

    # -- topics and settings

    async def create_topics(
        self, wanted: Sequence[TopicSpec], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """Creates topics; returns an outcome for each, in order. One that cannot be made does not stop the others.

        Returns when the brokers that hold the topics have applied them, or after a few seconds.
        """
        return await self._topics.create(wanted, validate_only=validate_only)

    async def delete_topics(self, wanted: Sequence[tuple[str, UUID | None]]) -> list[TopicImage | KafkaError]:
        """Forgets topics, and returns the outcome for each, in order. Their data is removed when the image is applied.

        A name comes once. UNKNOWN_TOPIC_ID when a topic has another id than the given one.
        """
        return await self._topics.delete(wanted)

    async def create_partitions(
        self, wanted: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> list[TopicImage | KafkaError]:
        """Grows topics together, and returns the outcome for each, in order. A name comes once.

        INVALID_PARTITIONS unless the total is above what a topic has. Returns when the brokers that hold the topics have
        applied them, or after a few seconds.
        """
        return await self._topics.grow(wanted, validate_only=validate_only)

    async def alter_topic_configs(
        self, name: str, change: ConfigChange, *, validate_only: bool = False
    ) -> TopicImage:
        """Replaces a topic's overrides by the result of `change`, after a check."""
        altered = await self._topics.alter_configs(name, change, validate_only=validate_only)
        if any(partition.leader == NO_LEADER for partition in altered.partitions) and not validate_only:
            await self.changes.applied(self.brokers.settings_changed)  # it may allow an unclean leader now
        return altered

    async def alter_broker_configs(
        self, change: ConfigChange, *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Replaces the dynamic broker settings by the result of `change`, which checks them."""
        return await self.alter(BROKER_CONFIGS, change, validate_only=validate_only)

    async def alter(self, document: Stored[T], change: Callable[[T], T], *, validate_only: bool = False) -> T:
        """Replaces a document by the result of `change`, which checks it, and raises to refuse."""

        async def at_once(before: T) -> T:
            return change(before)

        return await self.alter_in_turns(document, at_once, validate_only=validate_only)

    async def alter_in_turns(
        self, document: Stored[T], change: Callable[[T], Awaitable[T]], *, validate_only: bool = False
    ) -> T:
        """Does what `alter` does, for a change that takes turns on the event loop. No other change runs meanwhile."""
        altered = await self._settings.alter(document, change, validate_only=validate_only)
        if document.path in (BROKER_CONFIGS.path, RESOURCE_CONFIGS.path) and not validate_only:
            await self.changes.applied(self.brokers.settings_changed)
        return altered

    async def seen_by_all(self) -> bool:
        """Returns True when every broker in service has applied what is committed now; False after `_SEEN_SECONDS`.

        A broker that is cut off is not waited for longer than its session lasts: then it is not in service any more.
        """
        others = [broker.broker_id for broker in self.latest.brokers if broker.broker_id != self._me]
        version = self.latest.version
        return not others or await self._publication.applied_by(others, version, timeout_s=_SEEN_SECONDS)

    async def allocate_producer_ids(self) -> range:
        """Returns a block of producer ids that no broker was given before, durable before it is handed out."""
        return await self._settings.allocate_producer_ids()

    # -- brokers

    async def begin(self) -> None:
        """Takes office: finds the brokers that are there, and elects leaders. What cannot be written now is tried again."""
        await self.brokers_changed()

    async def brokers_changed(self) -> None:
        """Reads the registrations, which may have changed, and adapts the partitions. Raises nothing: it is tried again."""
        await self._check(self.brokers.refresh)

    def check_broker(self, broker: BrokerId, epoch: int) -> None:
        """Raises BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH unless this incarnation of it is registered."""
        self.brokers.check_epoch(broker, epoch)

    def applied_versions(self) -> dict[BrokerId, int]:
        """Returns the version of the image that each broker in service last reported to have applied; -1 before its first
        report."""
        versions = {
            broker.broker_id: self._publication.version_of(broker.broker_id) for broker in self.latest.brokers
        }
        return versions | {self._me: self.image.version}

    def healing_plan(self) -> HealingPlan:
        """Returns which replicas of dead brokers are created on others, and when."""
        return HealingPlan({}, 0) if self._maintenance is None else self._maintenance.plan()

    async def fence(self, broker: BrokerId, epoch: int) -> None:
        """Removes the registration of an incarnation that is known to be dead, and elects leaders. Fencing is always safe."""
        if await self.changes.alone(lambda: self._store.unregister(broker, epoch)):
            _log.warning("broker_fenced", broker=broker, epoch=epoch)
        await self.brokers_changed()

    async def unregister_broker(self, broker: BrokerId) -> None:
        """Forgets a broker that is down: no topic gets replicas on it any more. Raises BROKER_ID_NOT_REGISTERED when there
        is none, INVALID_REQUEST while it runs."""
        if not await self.changes.alone(lambda: self.brokers.forget(broker)):
            raise KafkaError(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker} is not registered in this cluster"
            )

    async def sync(self, report: BrokerReport, *, max_wait_s: float) -> SyncAnswer:
        """Handles a broker's report, and returns news as soon as there is some, or nothing after `max_wait_s`.

        The answer tells the local broker nothing: images come to it through `apply`.
        STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED when another incarnation, or none, is registered; NOT_CONTROLLER.
        """
        self.brokers.heard(report)
        if self._listening is None and self._policy is not None and report.broker_id != self._me:
            self._listening = asyncio.get_running_loop().create_task(
                self._listen(self._policy), name="listen"
            )
        if report.controller_epoch > self.epoch:
            await self.confirm_office()  # anyone can claim this; the registry knows
        if not self.brokers.is_settled(report):
            await self.changes.alone(lambda: self.brokers.hear(report))
        if report.controller_epoch == self.epoch:
            self._publication.acknowledged_by(report.broker_id, report.version, report.opening)
        if report.broker_id == self._me:
            response = await self._publication.applied_since(report.version, max_wait_s=max_wait_s)
        else:
            response = await self._publication.update_since(
                report.controller_epoch, report.version, max_wait_s=max_wait_s
            )
        self.brokers.check_epoch(report.broker_id, report.broker_epoch)
        return response

    # -- partitions

    async def alter_partitions(
        self, broker: BrokerId, epoch: int, proposals: Mapping[TopicIdPartition, ProposedIsr]
    ) -> IsrOutcomes:
        """Decides on leaders' proposals of ISRs: returns a partition's next state, or an error, for each (topic id, partition).

        STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED when all are refused because another incarnation asks.
        """
        return await self.partition_changes.alter_isr(broker, epoch, proposals)

    async def reassign(
        self, wanted: Sequence[Reassignment], *, allow_factor_change: bool = True
    ) -> list[KafkaError | None]:
        """Moves partitions to other replicas, or cancels moves; one outcome for each, in order."""
        return await self.partition_changes.reassign(wanted, allow_factor_change=allow_factor_change)

    async def elect_leaders(
        self, wanted: Iterable[TopicPartition] | None, *, unclean: bool
    ) -> dict[TopicPartition, KafkaError | None]:
        """Lets preferred replicas lead, or, where no broker leads, any replica at all; None means every partition."""
        return await self.partition_changes.elect(wanted, unclean=unclean)

    # -- inside

    @property
    def partition_changes(self) -> partitions.PartitionChanges:
        """The changes of partitions; made, and imported, for the first change of what several brokers hold."""
        if self._partition_changes is None:
            self._partition_changes = partitions.PartitionChanges(self.changes, self.brokers)
        return self._partition_changes

    def _keep_up(self, clock: Clock, policy: Callable[[], MaintenancePolicy]) -> None:
        self._policy = policy
        self._maintenance = Maintenance(
            self.changes, self.brokers, lambda: self.partition_changes, clock, policy
        )
        self._maintaining = asyncio.get_running_loop().create_task(self._maintenance.run(), name="upkeep")

    async def _listen(self, policy: Callable[[], MaintenancePolicy]) -> None:
        """Listens to brokers: one that is not heard any more must not lead, see `heartbeat_monitor.py`."""
        while not self._store.is_deposed:
            await asyncio.sleep(_LISTEN_SECONDS)
            try:
                limit_s = policy().silence_s
                silent = self.brokers.newly_silent(limit_s)
                if silent:
                    await self.changes.alone(partial(self.brokers.doubt, silent, limit_s))
            except KafkaError as error:
                _log.warning("silent_brokers_not_replaced", reason=error.message)
            except Exception:  # noqa: BLE001 - the root of a task
                _log.exception("silent_brokers_not_replaced")

    async def _check(self, look: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.changes.alone(look)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                self._publication.end()
                return
            _log.error("brokers_not_looked_at", reason=error.message)
            self._check_again_later()
            return
        if self.brokers.needs_another_look():
            self._check_again_later()

    def _check_again_later(self) -> None:
        if self._looking_again is None or self._looking_again.done():
            self._looking_again = asyncio.get_running_loop().create_task(
                self._check_after(_RETRY_SECONDS), name="look at brokers again"
            )

    async def _check_after(self, seconds: float) -> None:
        while not self._store.is_deposed:
            await asyncio.sleep(seconds)
            try:
                await self.changes.alone(self.brokers.refresh)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    return
                continue
            except Exception:  # noqa: BLE001 - the root of a task: brokers would stay in service without end
                _log.exception("brokers_not_looked_at")
                continue
            if not self.brokers.needs_another_look():
                return
