"""Lags of many groups for one page: some groups are slow, some readers leave, and others come again."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from odradek.client.admin.group_descriptions import GroupDescription
from odradek.client.aio import AsyncAdmin
from odradek.console.model.group_reading import (
    DETAIL_AGE_MS,
    DETAILS_AT_ONCE,
    LISTED_AGE_MS,
    GroupReader,
)
from odradek.console.model.lag_history import LagHistory
from odradek.console.model.snapshot import ModelSnapshot
from odradek.console.records.reading import ClusterReader
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock

PATIENT_S = 60.0
NAMES = [f"g{number}" for number in range(50)]
REFUSAL = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator is gone")


class SetClock:
    """A clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def wall_ms(self) -> int:
        return self.now_ms


class Coordinator:
    """Describes groups of a cluster without topics. Those in `held` are described, or refused, when `gate` opens."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.held: set[str] = set()
        self.gate = asyncio.Event()
        self.refusal: KafkaError | None = None

    async def describe_groups(self, names: list[str], **_: Any) -> dict[str, GroupDescription]:
        [name] = names
        self.asked.append(name)
        if name in self.held:
            await self.gate.wait()
            if self.refusal is not None:
                raise self.refusal
        return {
            name: GroupDescription(
                group_id=name, type="consumer", protocol_type="", state="Empty", assignor="", coordinator=1
            )
        }

    async def list_group_offsets(self, name: str, **_: Any) -> dict[Any, Any]:
        return {}


class NoRecords:
    """Reads of a group that is behind nowhere."""

    async def unread_ages_ms(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        assert not positions
        return {}


def reader_of(coordinator: Coordinator, clock: SetClock) -> GroupReader:
    snapshot = ModelSnapshot()
    return GroupReader(
        cast(AsyncAdmin, coordinator),
        cast(ClusterReader, NoRecords()),
        cast(Clock, clock),
        lambda: snapshot,
        LagHistory(),
    )


async def asked(coordinator: Coordinator, count: int) -> None:
    while len(coordinator.asked) < count:
        await asyncio.sleep(0)


async def left(visit: asyncio.Task[Any]) -> None:
    """Has the reader of a page leave."""
    visit.cancel()
    await asyncio.gather(visit, return_exceptions=True)


async def test_groups_that_were_read_in_time_are_shown_without_the_slow_one() -> None:
    coordinator = Coordinator()
    coordinator.held = {"g1"}
    reader = reader_of(coordinator, SetClock())
    shown = await reader.details(["g0", "g1", "g2", "g0"], wait_s=1.0)
    assert sorted(shown) == ["g0", "g2"]
    coordinator.gate.set()
    shown = await reader.details(["g0", "g1", "g2"], wait_s=PATIENT_S)
    assert sorted(shown) == ["g0", "g1", "g2"]
    assert sorted(coordinator.asked) == ["g0", "g1", "g2"]  # what had begun went on
    await reader.close()


async def test_the_next_visit_reads_those_that_the_last_one_did_not_come_to() -> None:
    """Slow groups fill all slots of the first visit; the second one begins with the others."""
    coordinator, clock = Coordinator(), SetClock()
    coordinator.held = set(NAMES[:DETAILS_AT_ONCE])
    reader = reader_of(coordinator, clock)
    visit = asyncio.create_task(reader.details(NAMES, PATIENT_S))
    await asked(coordinator, DETAILS_AT_ONCE)
    await left(visit)
    clock.now_ms += DETAIL_AGE_MS
    visit = asyncio.create_task(reader.details(NAMES, PATIENT_S))
    async with asyncio.timeout(PATIENT_S):
        await asked(coordinator, len(NAMES))
    assert not visit.done()
    coordinator.gate.set()
    assert sorted(await visit) == sorted(NAMES)
    await reader.close()


async def test_a_group_that_cannot_be_read_again_in_time_is_shown_as_it_was_for_a_while() -> None:
    coordinator, clock = Coordinator(), SetClock()
    reader = reader_of(coordinator, clock)
    await reader.details(["g0"], PATIENT_S)
    coordinator.held = {"g0"}
    read_ms = clock.now_ms
    clock.now_ms = read_ms + LISTED_AGE_MS - 1
    assert (await reader.details(["g0"], wait_s=0.01))["g0"].read_ms == read_ms
    clock.now_ms = read_ms + LISTED_AGE_MS
    assert await reader.details(["g0"], wait_s=0.01) == {}
    await reader.close()


@contextmanager
def reports() -> Iterator[list[dict[str, Any]]]:
    """Collects what the loop would log."""
    loop, collected = asyncio.get_running_loop(), list[dict[str, Any]]()
    loop.set_exception_handler(lambda _, context: collected.append(context))
    try:
        yield collected
        gc.collect()
    finally:
        loop.set_exception_handler(None)


async def test_a_reading_that_fails_when_its_reader_has_left_is_no_unhandled_error() -> None:
    coordinator = Coordinator()
    coordinator.held, coordinator.refusal = {"g0", "g1"}, REFUSAL
    reader = reader_of(coordinator, SetClock())
    with reports() as reported:
        assert await reader.details(["g0"], wait_s=0.01) == {}
        visit = asyncio.create_task(reader.detail("g1"))
        await asked(coordinator, 2)
        await left(visit)
        coordinator.gate.set()
        del visit
        for _ in range(10):
            await asyncio.sleep(0)
        gc.collect()
    assert reported == []
    await reader.close()
