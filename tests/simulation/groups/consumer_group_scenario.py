"""A consumer group (KIP-848) in the world of `group_scenario`: the same members' fates and faults, the other protocol."""

from __future__ import annotations

from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.consumer_group_history import ConsumerGroupHistory
from tests.simulation.groups.consumer_group_members import SESSION_MS, ConsumerGroupMember
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.scenario import TOPIC, GroupScenario, SimulatedMember

from odradek.testing.sim.entropy import stream
from odradek.testing.sim.world import World


class ConsumerGroupScenario(GroupScenario):
    """Settled is: all members in one epoch, every partition used once."""

    def _new_history(self) -> GroupHistory:
        return ConsumerGroupHistory()

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "300",
            "group.consumer.session.timeout.ms": str(SESSION_MS),
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.assignment.interval.ms": "200",
        }

    def _member(self, seed: int, number: int) -> SimulatedMember:
        assert isinstance(self._history, ConsumerGroupHistory)
        return ConsumerGroupMember(
            self._context,
            self._history,
            stream(seed, f"member {number}"),
            name=f"m{number}",
            topic=TOPIC,
            is_static=number < self._plan.static_count,
            retires=self._plan.one_retires and number == self._plan.member_count - 1,
        )


def run_consumer_groups(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(ConsumerGroupScenario(world, seed, plan.faults(seed)).run)
