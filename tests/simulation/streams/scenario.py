"""A streams group (KIP-1071) in the scenario of `groups/scenario`: the same fates and faults, with tasks for partitions.

Settled is: all members in one epoch, and every task active once. The broker creates the internal topics while it is tormented.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.broker.clients import ClientContext
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.epoch_members import SESSION_MS
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.scenario import (
    TOPIC,
    GroupProtocol,
    GroupScenario,
    Membership,
    SimulatedMember,
)
from tests.simulation.streams.history import StreamsHistory
from tests.simulation.streams.members import StreamsMember

from odradek.testing.sim.world import World

_SETTINGS: Final = {
    "group.streams.heartbeat.interval.ms": "300",
    "group.streams.min.heartbeat.interval.ms": "300",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.assignment.interval.ms": "200",
    "group.streams.initial.rebalance.delay.ms": "300",
    "group.streams.num.standby.replicas": "1",
}


def _member(
    context: ClientContext, history: GroupHistory, rng: Random, membership: Membership
) -> SimulatedMember:
    """Two members share a process, unless they are static: the first two, the next two."""
    assert isinstance(history, StreamsHistory)
    process = membership.name if membership.is_static else f"p{membership.number // 2}"
    return StreamsMember(
        context,
        history,
        rng,
        name=membership.name,
        process_id=process,
        topic=TOPIC,
        partition_count=membership.partition_count,
        is_static=membership.is_static,
        retires=membership.retires,
    )


STREAMS: Final = GroupProtocol(
    new_history=StreamsHistory, new_member=_member, settings=_SETTINGS, tasks_of_partition=2
)


def run_streams_groups(world: World, seed: int, plan: FaultPlan) -> None:
    """Runs the scenario in a world of its own."""
    world.run(GroupScenario(world, seed, plan.faults(seed), STREAMS).run)
