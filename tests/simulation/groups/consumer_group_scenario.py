"""A consumer group (KIP-848) in the scenario of `groups/scenario`: the same members' fates and faults, the other protocol.

Settled is: all members in one epoch, every partition used once, and by no member two more than by another.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.broker.clients import ClientContext
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.consumer_group_history import ConsumerGroupHistory
from tests.simulation.groups.consumer_group_members import ConsumerGroupMember
from tests.simulation.groups.epoch_members import SESSION_MS
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.scenario import (
    TOPIC,
    GroupProtocol,
    GroupScenario,
    Membership,
    SimulatedMember,
)

from odradek.testing.sim.world import World

_SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "200",
}


def _member(
    context: ClientContext, history: GroupHistory, rng: Random, membership: Membership
) -> SimulatedMember:
    assert isinstance(history, ConsumerGroupHistory)
    return ConsumerGroupMember(
        context,
        history,
        rng,
        name=membership.name,
        topic=TOPIC,
        is_static=membership.is_static,
        retires=membership.retires,
    )


CONSUMER: Final = GroupProtocol(
    new_history=ConsumerGroupHistory, new_member=_member, settings=_SETTINGS, is_even=True
)


def run_consumer_groups(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(GroupScenario(world, seed, plan.faults(seed), CONSUMER).run)
