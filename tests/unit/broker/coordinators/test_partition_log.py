"""When the log of a shard puts an append off until a flush has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.replication.role_world import ME, TWO, World

from odradek.broker.coordinators.partition_log import PartitionLog
from odradek.runtime.real import real_runtime


def flushing(directory: Path, *isr: Any, **config: Any) -> tuple[World, PartitionLog]:
    """Returns a leader among these replicas that is being flushed, and its log."""
    world = World(directory, **config)
    world.lead(*isr, replicas=isr)
    world.partition.flush_end.begin()
    return world, PartitionLog(world.partition, real_runtime().offload)


async def test_an_append_that_waits_for_the_next_flush_waits_for_the_end_of_this_one(tmp_path: Path) -> None:
    world, log = flushing(tmp_path, ME)
    calls: list[int] = []
    assert log.call_after_flush(lambda: calls.append(1))
    assert calls == []
    world.partition.flush_end.reach()
    assert calls == [1]
    assert not log.call_after_flush(pytest.fail)


async def test_an_append_that_followers_wait_for_does_not_wait(tmp_path: Path) -> None:
    _, log = flushing(tmp_path, ME, TWO)
    assert not log.call_after_flush(pytest.fail)


async def test_an_append_that_is_acknowledged_without_a_flush_does_not_wait(tmp_path: Path) -> None:
    _, log = flushing(tmp_path, ME, flush_before_ack=False)
    assert not log.call_after_flush(pytest.fail)
