"""The registry of several brokers goes on while its disk is full, for long, and whatever takes the space that is freed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.registry import Create, EmbeddedRegistry, Put, RegistryError
from odradek.registry.space_reserve import PORTION_BYTES, RESERVE_BYTES, RESERVE_NAME, SpaceReserve
from odradek.runtime.ports import Runtime
from odradek.testing.sim import Medium, SimDisk, SimEntropy, stream
from odradek.testing.sim.disk_faults import CrashKind

_DIRECTORY = "/data"
_TOPIC = "/topics/t"
_LENGTH = 2_000


class Inline:
    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        return work(*arguments)


class StandingClock:
    """A clock that stands until a test moves it: no one is silent for too long."""

    def __init__(self) -> None:
        self.now = 0.0

    def wall_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now


class Machine:
    """A disk, and the processes on it."""

    def __init__(self) -> None:
        self.medium = Medium()
        self.clock = StandingClock()
        self.disks: list[SimDisk] = []
        self.boot()
        self.disks[0].make_directory(_DIRECTORY)
        self.disks[0].sync_directory("/")

    def boot(self) -> EmbeddedRegistry | None:
        """Another process; None for the first, which only makes the directory."""
        name = f"process {len(self.disks)}"
        disk = SimDisk(self.medium, rng=stream(name, "disk"))
        self.disks.append(disk)
        if len(self.disks) == 1:
            return None
        runtime = Runtime(
            clock=self.clock, entropy=SimEntropy(stream(name, "entropy")), disk=disk, offload=Inline()
        )
        return EmbeddedRegistry.open(runtime, _DIRECTORY)

    def opened(self) -> EmbeddedRegistry:
        registry = self.boot()
        assert registry is not None
        return registry

    def fill(self) -> None:
        self.medium.capacity_bytes = self.medium.used_bytes()

    def reserve_bytes(self) -> int:
        return SpaceReserve(self.disks[0], _DIRECTORY).size()

    async def has_reserve(self, length: int = RESERVE_BYTES) -> None:
        await until(lambda: self.reserve_bytes() >= length)

    def steal(self) -> None:
        """What the logs of a broker do: take all that is free."""
        free_bytes = self.medium.free_bytes()
        file = self.disks[0].open(f"{_DIRECTORY}/log", create=True)
        file.pwrite(bytes(free_bytes), file.length())
        file.close()


@asynccontextmanager
async def shared(machine: Machine) -> AsyncIterator[tuple[EmbeddedRegistry, EmbeddedRegistry]]:
    machine.disks[0].open(f"{_DIRECTORY}/log", create=True).close()
    first, second = machine.opened(), machine.opened()
    await first.commit([Create(path="/brokers/1", data=b"", ephemeral=True)])
    await second.commit([Create(path="/brokers/2", data=b"", ephemeral=True)])
    await first.commit([Create(path=_TOPIC, data=bytes(_LENGTH))])
    await machine.has_reserve()
    yield first, second
    machine.medium.capacity_bytes = None
    await first.close()
    await second.close()


async def change(registry: EmbeddedRegistry, count: int) -> int:
    """Commit so many changes; returns the version of the last."""
    await registry.sync()
    for _ in range(count):
        node = await registry.get(_TOPIC)
        assert node is not None
        await registry.commit([Put(path=_TOPIC, data=bytes(_LENGTH), version=node.version)])
    node = await registry.get(_TOPIC)
    assert node is not None
    return node.version


async def test_commits_go_on_for_as_long_as_the_disk_is_full() -> None:
    machine = Machine()
    async with shared(machine) as (first, second):
        machine.fill()
        for round_number in range(1, 13):
            version = await change((first, second)[round_number % 2], 100)
            assert version == round_number * 100
            assert machine.medium.used_bytes() <= machine.medium.total_bytes()
        assert machine.reserve_bytes() > 0


async def test_hundreds_of_commits_go_on_though_others_take_all_that_is_freed() -> None:
    machine = Machine()
    async with shared(machine) as (first, second):
        machine.fill()
        for number in range(200):
            machine.steal()
            assert await change((first, second)[number % 2], 1) == number + 1


async def test_a_broker_that_is_restarted_while_the_disk_is_full_joins_again() -> None:
    machine = Machine()
    async with shared(machine) as (first, _):
        machine.fill()
        third = machine.opened()
        await third.commit([Create(path="/brokers/3", data=b"", ephemeral=True)])
        await first.sync()
        assert await first.get("/brokers/3") is not None
        await third.close()


async def test_the_reserve_is_made_again_when_there_is_space() -> None:
    machine = Machine()
    async with shared(machine) as (first, _):
        machine.fill()
        for _ in range(40):
            machine.steal()
            await change(first, 1)
        assert machine.reserve_bytes() < RESERVE_BYTES - 3 * PORTION_BYTES
        machine.medium.capacity_bytes = None
        machine.clock.now += 2.0
        await machine.has_reserve(RESERVE_BYTES - PORTION_BYTES)


async def test_a_commit_that_even_the_reserve_has_no_space_for_is_refused_and_leaves_no_trace() -> None:
    machine = Machine()
    async with shared(machine) as (first, second):
        machine.fill()
        with pytest.raises(RegistryError, match="No space left"):
            await first.commit([Create(path="/large", data=bytes(4 * RESERVE_BYTES))])
        machine.medium.capacity_bytes = None
        assert await change(second, 3) == 3
        assert await second.get("/large") is None


async def test_a_broker_alone_keeps_no_reserve() -> None:
    machine = Machine()
    registry = machine.opened()
    await registry.commit([Create(path="/brokers/1", data=b"", ephemeral=True)])
    points = machine.disks[1].point_count
    await until(lambda: machine.disks[1].point_count >= points + 10)
    assert not machine.disks[0].exists(f"{_DIRECTORY}/{RESERVE_NAME}")
    await registry.close()


@pytest.mark.parametrize("free_bytes", [0, 1, PORTION_BYTES - 1, PORTION_BYTES, 5 * PORTION_BYTES + 7])
def test_a_reserve_takes_whole_portions_of_what_there_is(free_bytes: int) -> None:
    machine = Machine()
    reserve = SpaceReserve(machine.disks[0], _DIRECTORY)
    machine.medium.capacity_bytes = machine.medium.used_bytes() + free_bytes
    reserve.fill(0)
    assert reserve.size() == free_bytes // PORTION_BYTES * PORTION_BYTES
    assert machine.medium.free_bytes() == free_bytes % PORTION_BYTES


def test_a_reserve_outlives_a_crash() -> None:
    machine = Machine()
    reserve = SpaceReserve(machine.disks[0], _DIRECTORY)
    reserve.fill(0)
    machine.disks[0].sync_directory(_DIRECTORY)
    machine.disks[0].crash(CrashKind.POWER_LOSS)
    again = SpaceReserve(SimDisk(machine.medium, rng=stream("again", "disk")), _DIRECTORY)
    assert again.size() == RESERVE_BYTES
