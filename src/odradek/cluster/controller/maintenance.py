"""The controller's clockwork: checks from time to time whether something needs healing or a move back
(`healing.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from odradek.cluster.controller.brokers import BrokerChanges
from odradek.cluster.controller.changes import Changes
from odradek.config.broker import BrokerConfig
from odradek.model.errors import KafkaError
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.runtime.ports import Clock
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.cluster import healing
    from odradek.cluster.controller.partitions import PartitionChanges
else:
    healing = lazy("odradek.cluster.healing")

_LOOK_SECONDS: Final = (1.0, 30.0)
"""Seconds between two searches for partitions to heal: the healing delay, within these bounds."""
_log = events.get("cluster")


class MaintenancePolicy(NamedTuple):
    """The settings of maintenance."""

    rebalances_leaders: bool = True
    rebalance_interval_s: float = 300.0
    imbalance_percentage: int = 10
    healing_delay_s: float | None = 1800.0
    """None disables healing."""
    healing_partitions_max: int = 20
    silence_s: float = 9.0
    """A broker that is silent for longer does not lead any more where others can."""


class HealingPlan(NamedTuple):
    """What the controller plans to make again, and what it makes."""

    due_s: Mapping[BrokerId, float]
    """The seconds until the replicas of each dead broker are made on others; none where healing is disabled."""
    partition_count: int
    """The partitions whose lost replicas are being made now."""


class Maintenance:
    """The controller's regular work: it heals lost replicas and restores preferred leaders. `run` it in a task, for as long
    as the controller is in office; `policy` is called again for each round."""

    def __init__(
        self,
        changes: Changes,
        brokers: BrokerChanges,
        partitions: Callable[[], PartitionChanges],
        clock: Clock,
        policy: Callable[[], MaintenancePolicy],
    ) -> None:
        self._changes = changes
        self._brokers = brokers
        self._partitions = partitions
        self._clock = clock
        self._policy = policy
        self.healing: dict[tuple[UUID, int], tuple[BrokerId, ...]] = {}
        """Moves that were begun here, by their targets; the next controller knows of none, and lets them go on."""

    async def run(self) -> None:
        rebalanced_at = self._clock.monotonic()
        while not self._changes.store.is_deposed:
            policy = self._policy()
            await asyncio.sleep(min(_pause_s(policy), policy.rebalance_interval_s))
            try:
                await self.heal(policy)
                if self._clock.monotonic() - rebalanced_at >= policy.rebalance_interval_s:
                    rebalanced_at = self._clock.monotonic()
                    await self.restore_preferred_leaders(policy)
            except KafkaError as error:
                _log.warning("upkeep_failed", reason=error.message)
            except Exception:  # noqa: BLE001 - the root of a task: without it nothing would be healed any more
                _log.exception("upkeep_failed")

    def plan(self) -> HealingPlan:
        """Returns what is planned, by the settings as they are now."""
        delay_s = self._policy().healing_delay_s
        now = self._clock.monotonic()
        dead_since = {} if delay_s is None else self._brokers.dead_since
        due_s = {broker: max(when + (delay_s or 0.0) - now, 0.0) for broker, when in dead_since.items()}
        return HealingPlan(due_s, len(self.healing))

    async def heal(self, policy: MaintenancePolicy) -> None:
        """Begins to replace replicas whose brokers have been dead for long, and stops where they came back."""
        if self.healing:
            await self._cancel_healing()
        if policy.healing_delay_s is None or not self._brokers.dead_since:
            return
        since = self._clock.monotonic() - policy.healing_delay_s
        dead = frozenset(broker for broker, when in self._brokers.dead_since.items() if when <= since)
        if not dead:
            return

        moves = healing.replicas_to_heal(
            self._changes.image,
            dead,
            full=self._brokers.without_space(),
            partitions_max=policy.healing_partitions_max,
        )
        if moves:
            _log.warning("replicas_healed", brokers=sorted(dead), partitions=len(moves))
            outcomes = await self._partitions().reassign(moves, allow_factor_change=False)
            topics = self._changes.image.topics
            for move, outcome in zip(moves, outcomes, strict=True):
                if outcome is None and move.replicas is not None and move.topic in topics:
                    self.healing[topics[move.topic].topic_id, move.partition] = move.replicas

    async def _cancel_healing(self) -> None:
        image = self._changes.image
        moves = healing.healing_to_cancel(image, self.healing)
        if moves:
            _log.info("healing_cancelled", partitions=len(moves), reason="the replicas' brokers are back")
            await self._partitions().reassign(moves, allow_factor_change=False)
        topics = self._changes.image.topics_by_id
        self.healing = {
            (topic_id, index): target
            for (topic_id, index), target in self.healing.items()
            if topic_id in topics and topics[topic_id].partitions[index].is_reassigned
        }

    async def restore_preferred_leaders(self, policy: MaintenancePolicy) -> None:
        """Lets preferred leaders lead again."""
        if not policy.rebalances_leaders or len(self._changes.image.brokers) < 2:
            return

        names = healing.preferred_leaders_to_restore(
            self._changes.image,
            self._brokers.liveness().standing_for,
            percentage=policy.imbalance_percentage,
        )
        if names:
            await self._partitions().elect(names, unclean=False)


def policy_of(config: BrokerConfig) -> MaintenancePolicy:
    """Returns the policy of a broker's settings. A broker is silent once it was not heard for as long as a session may last."""
    session_ms = config.cluster.broker_session_timeout_ms
    if config.zookeeper.connect:
        session_ms = config.zookeeper.session_timeout_ms
    delay_ms = config.controller.odradek_healing_delay_ms
    return MaintenancePolicy(
        rebalances_leaders=config.controller.auto_leader_rebalance_enable,
        rebalance_interval_s=config.controller.leader_imbalance_check_interval_seconds,
        imbalance_percentage=config.controller.leader_imbalance_per_broker_percentage,
        healing_delay_s=None if delay_ms < 0 else delay_ms / 1000,
        healing_partitions_max=config.controller.odradek_healing_partitions_max,
        silence_s=session_ms / 1000,
    )


def _pause_s(policy: MaintenancePolicy) -> float:
    shortest, longest = _LOOK_SECONDS
    return longest if policy.healing_delay_s is None else min(longest, max(shortest, policy.healing_delay_s))
