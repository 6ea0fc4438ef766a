"""A group on a broker on trial: members that doze, leave and come back, while the broker dies at any point of what it writes.

After the faults stop, the group must settle within bounded time: one generation, every partition owned once. What was committed
is then compared with what the members know, once with the broker that is running and once more after the power cut. The members
speak one protocol: the classic one here, KIP-848's in `consumer_group_scenario`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from tests.simulation.broker.clients import ClientContext, RefusedError, create_topic
from tests.simulation.broker.trial import BrokerTrial, Torment
from tests.simulation.fault_plan import FaultPlan
from tests.simulation.groups.history import GroupHistory
from tests.simulation.groups.members import GroupMember, check_offset, commit_alone, find_coordinator

from odradek.testing.sim.disk_faults import DiskFault
from odradek.testing.sim.entropy import stream
from odradek.testing.sim.offload import OffloadDelays
from odradek.testing.sim.world import World

TOPIC: Final = "topic"
_SETTLING_S_MAX: Final = 120.0
"""Within this long after the last fault, the group is stable."""
GROUP_SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "offsets.retention.check.interval.ms": "2000",
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "300",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """The plan of a run, which its seed decides."""

    partition_count: int
    member_count: int
    static_count: int
    one_retires: bool
    torment: Torment
    sync_s: float
    """The longest that each step of making a write durable takes."""

    @classmethod
    def draw(cls, seed: int) -> GroupPlan:
        rng = stream(seed, "group plan")
        member_count = rng.choice((2, 3, 4))
        partition_count = rng.choice((1, 3, 5))
        static_count = rng.choice((0, 0, 1, member_count))
        one_retires = rng.random() < 0.4
        disk_stall_s = rng.choice((0.0, 0.0, 0.01))
        sync_s = rng.choice((0.002, 0.05, 0.2))
        torment = Torment(
            disk_stall_s=disk_stall_s,
            calm_after_s=rng.uniform(5.0, 30.0),
            crash_mean_s=rng.choice((2.0, 8.0, 1000.0)),
            cuts_links=rng.random() < 0.6,
            jumps_clock=rng.random() < 0.3,
        )
        return cls(
            partition_count=partition_count,
            member_count=member_count,
            static_count=static_count,
            one_retires=one_retires,
            torment=torment,
            sync_s=sync_s,
        )

    def trial(
        self, world: World, seed: int, settings: Mapping[str, str], lives: Sequence[Sequence[DiskFault]]
    ) -> BrokerTrial:
        """A broker with a disk as slow as the plan says."""
        made = BrokerTrial(world, seed, self.torment, {**GROUP_SETTINGS, **settings}, lives)
        made.host.offload_delays = OffloadDelays(start_s=(0.0, self.sync_s), step_s=(0.0, self.sync_s))
        return made


class SimulatedMember(Protocol):
    """What the scenario needs of a member, whatever protocol it speaks."""

    name: str
    is_gone: bool
    generation: int
    owned: list[int] | None

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What the plan says of one member."""

    number: int
    partition_count: int
    is_static: bool
    retires: bool

    @property
    def name(self) -> str:
        return f"m{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProtocol:
    """The protocol that all members speak."""

    new_history: Callable[[], GroupHistory]
    new_member: Callable[[ClientContext, GroupHistory, Random, Membership], SimulatedMember]
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the broker needs besides."""
    is_even: bool = False
    """In a settled group no member has two partitions more than another."""
    tasks_of_partition: int = 1
    """How many things there are to own for each partition of the topic, numbered from 0."""


def _classic_member(
    context: ClientContext, history: GroupHistory, rng: Random, membership: Membership
) -> SimulatedMember:
    return GroupMember(
        context,
        history,
        rng,
        name=membership.name,
        topic=TOPIC,
        partition_count=membership.partition_count,
        is_static=membership.is_static,
        retires=membership.retires,
    )


CLASSIC: Final = GroupProtocol(new_history=GroupHistory, new_member=_classic_member)


class GroupScenario:
    """One run in a world. `lives` gives the disk faults of each boot in turn; later boots have none."""

    def __init__(
        self,
        world: World,
        seed: int,
        lives: Sequence[Sequence[DiskFault]] = (),
        protocol: GroupProtocol = CLASSIC,
    ) -> None:
        plan = self._plan = GroupPlan.draw(seed)
        self._trial = plan.trial(world, seed, protocol.settings, lives)
        self._context = self._trial.context
        self._history = protocol.new_history()
        self._is_even = protocol.is_even
        self._task_count = plan.partition_count * protocol.tasks_of_partition
        self._is_over = False
        self._members = [
            protocol.new_member(
                self._context,
                self._history,
                stream(seed, f"member {number}"),
                Membership(
                    number=number,
                    partition_count=plan.partition_count,
                    is_static=number < plan.static_count,
                    retires=plan.one_retires and number == plan.member_count - 1,
                ),
            )
            for number in range(plan.member_count)
        ]

    async def run(self) -> None:
        """Raises `ViolationError` when a promise was broken."""
        await self._trial.run(self._live_and_settle, self._check_offsets_somewhere)

    async def _check_offsets_somewhere(self) -> None:
        await self._trial.hosts[0].spawn(self._check_offsets())

    async def _live_and_settle(self) -> None:
        creating = create_topic(self._context, TOPIC, self._plan.partition_count, {})
        await self._trial.anyone().spawn(creating)
        await self._trial.anyone().spawn(commit_alone(self._context, self._history, TOPIC))
        running = [
            self._trial.anyone().spawn(member.run(lambda: self._trial.is_calm, lambda: self._is_over))
            for member in self._members
        ]
        await self._trial.torment_while(running)
        await self._trial.settle(
            self._is_settled,
            running,
            seconds_max=_SETTLING_S_MAX,
            seen=lambda: [(member.name, member.generation, member.owned) for member in self._members],
        )
        self._is_over = True
        await asyncio.gather(*running)
        await self._check_offsets_somewhere()

    def _is_settled(self) -> bool:
        alive = [member for member in self._members if not member.is_gone]
        generations = {member.generation for member in alive}
        owned = sorted(partition for member in alive for partition in member.owned or ())
        is_complete = all(member.owned is not None for member in alive)
        counts = [len(member.owned or ()) for member in alive]
        if self._is_even and max(counts) - min(counts) > 1:
            return False
        return is_complete and len(generations) == 1 and owned == list(range(self._task_count))

    async def _check_offsets(self) -> None:
        """Each partition's, until the broker answers."""
        partition = 0
        while partition < self._plan.partition_count:
            try:
                with closing(await self._context.connect()) as client:
                    await find_coordinator(client)
                    await check_offset(client, self._history, TOPIC, partition)
                    partition += 1
            except (OSError, RefusedError):
                await self._context.pause()


def run_groups(world: World, seed: int, plan: FaultPlan) -> None:
    """Run the scenario in a world of its own."""
    world.run(GroupScenario(world, seed, plan.faults(seed)).run)
