"""What comes and goes leaves nothing behind, whatever kind of thing it is: no object, nothing in a container, and no cycle.

The collector is off. A broker's collector looks seldom at what is old (`broker/process.py`), so what lived for long must be
freed by its reference counts alone.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.kit.waiting import until
from tests.scenarios.lifetimes.held import held
from tests.scenarios.lifetimes.lives import LIVES, SMALL, Life
from tests.scenarios.one_broker import Scene

_WARM: Final = 2
_ROUNDS: Final = 6
_SECONDS_MAX: Final = 15.0
_BOUNDED: Final = {
    "odradek.cluster.controller.publishing.Publication._recent": "128 images, of which brokers that lag get the changes",
    "odradek.cluster.image.ClusterImage": "the same",
    "odradek.cluster.image.ClusterImage.topics": "the same, with 160,000 topics in all of them",
    "odradek.cluster.image.ClusterImage.topics_by_id": "the same",
    "odradek.cluster.image.TopicImage": "the same",
    "odradek.cluster.image.PartitionImage": "the same",
    "odradek.groups.shard.formats.OffsetCommitKey": "a cache of 4,096",
    "odradek.groups.shard.deadlines.Deadlines._heap": "64, or four for each deadline: what is cancelled goes at its time",
    "odradek.groups.shard.deadlines.DeadlineKey": "the same",
    "odradek.protocol.wire.UuidCache.(itself)": "a cache of 8,192",
    "odradek.protocol.small_commits._Front": "a cache of 1,024",
    "odradek.storage.directories.log_directory.LogDirectory._stale": "partitions deleted since the last checkpoint, 60 s ago",
    "odradek.storage.files.open_files.OpenFiles._writers": "64 that are closed, and as many as are open",
    "odradek.storage.files.writer.SegmentWriter": "the same",
    "odradek.runtime.real_disk.PosixFile": "the same",
    "odradek.testing.guarded_disk.GuardedFile": "the same",
    "odradek.storage.segment.segment_index.SegmentIndex.hints": "64 for each segment",
    "odradek.storage.segment.batch_search.BatchSearch._hints": "the same",
    "odradek.storage.segment.transaction_index.TransactionIndex._pending": "34 bytes for each abort, until a flush",
}
"""What may grow in a few rounds, and its bound."""


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
async def test_nothing_is_left(scene: Scene, life: Life) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    assert (await wire.create("t")).error_code == 0
    await wire.find_coordinator()
    for number in range(_WARM):
        await life(scene, wire, number)
    before = await _calm()
    for number in range(_WARM, _WARM + _ROUNDS):
        await life(scene, wire, number)
    await until(lambda: _grown(before), holds=lambda left: not left, seconds=_SECONDS_MAX, every_s=0.05)


async def _calm() -> Counter[str]:
    """What is held once the broker has done what it does in the background after a start."""
    before = held()
    for _ in range(40):
        await asyncio.sleep(0.1)
        now, before = before, held()
        if now == before:
            break
    return before


def _grown(before: Counter[str]) -> dict[str, int]:
    """Returns how many more objects of each kind there are than `before`, if at least one for each round."""
    more = held() - before
    return {name: count for name, count in more.items() if count >= _ROUNDS and name not in _BOUNDED}


class Half:
    """One of two that hold each other."""

    other: Any = None


Half.__module__ = "odradek.planted"


@pytest.mark.usefixtures("_no_collector")
def test_a_cycle_and_a_container_that_grows_are_seen() -> None:
    kept = Half()
    kept.other = []
    before = held()
    for number in range(_ROUNDS):
        left, right = Half(), Half()
        left.other, right.other = right, left
        kept.other.append(number)
    del left, right
    assert _grown(before) == {"odradek.planted.Half": 2 * _ROUNDS, "odradek.planted.Half.other": _ROUNDS}
