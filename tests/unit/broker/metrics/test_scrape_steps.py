"""A scrape of very many partitions takes turns: no step of it does the work of a whole topic or a whole group.

What is counted are function calls and returns of the steps, so a busy machine changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any
from uuid import UUID

from odradek.broker.fetch.end_offsets import known_ends
from odradek.broker.metrics.collection import ControllerFamilies
from odradek.broker.metrics.partition_families import PartitionFamilies
from odradek.cluster.controller.maintenance import HealingPlan
from odradek.cluster.image import NO_LEADER, PartitionImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.runtime.turns import Turns

PARTITION_COUNT = 20_000
STEP_CALLS_MAX = 4_000
"""About a millisecond: a tenth of what may hold the loop."""
HERE = BrokerId(1)


class CallCount:
    """Counts calls and returns of the functions that run within."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        self.count += 1

    def of(self, work: Callable[[], object]) -> int:
        before = self.count
        sys.setprofile(self._note)
        try:
            work()
        finally:
            sys.setprofile(None)
        return self.count - before


def large_topic() -> TopicImage:
    states = [
        PartitionImage(
            leader=NO_LEADER if index % 4 == 0 else HERE,
            leader_epoch=LeaderEpoch(0),
            replicas=(HERE,) if index % 2 else (BrokerId(2), HERE),
            isr=(HERE,),
        )
        for index in range(PARTITION_COUNT)
    ]
    return TopicImage(name="large", topic_id=UUID(int=7), partitions=tuple(states))


def broker_of(topic: TopicImage) -> Any:
    def leader(name: str, index: int) -> Any:
        if index % 4 == 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "led elsewhere")
        return SimpleNamespace(high_watermark=index)

    return SimpleNamespace(
        cluster=SimpleNamespace(
            leads=True, controller=SimpleNamespace(healing_plan=lambda: HealingPlan({}, 0))
        ),
        image=SimpleNamespace(topics={topic.name: topic}, brokers=()),
        coordinators=SimpleNamespace(here=HERE),
        replicas=SimpleNamespace(leader=leader, partitions={}),
        config=SimpleNamespace(transaction=SimpleNamespace(max_timeout_ms=0)),
        runtime=SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 0)),
    )


def test_the_controllers_figures_of_a_large_topic_come_in_steps() -> None:
    broker = broker_of(large_topic())
    partitions = PartitionFamilies(broker)
    families = ControllerFamilies(broker, partitions)
    steps, calls = families.steps(), CallCount()
    longest = 0
    is_over: list[bool] = []
    while not is_over:
        longest = max(
            longest, calls.of(lambda: is_over.append(True) if next(steps, "end") == "end" else None)
        )
    assert longest <= STEP_CALLS_MAX
    assert calls.count > 10 * STEP_CALLS_MAX, "all of it in one step would be counted"
    figures = {family.name: family for family in families.families()}
    offline = figures["kafka_controller_kafkacontroller_offlinepartitionscount"]
    assert [value for _, value in offline.samples] == [PARTITION_COUNT // 4]
    preferred = figures["kafka_controller_kafkacontroller_preferredreplicaimbalancecount"]
    assert [value for _, value in preferred.samples] == [PARTITION_COUNT // 2]
    leaderless = next(
        family for family in partitions.of_partitions() if family.name == "kafka_topic_partition_leader"
    )
    rows = leaderless.samples
    assert [text for text, _ in rows[:2]] == [
        'topic="large",partition="0"',
        'topic="large",partition="4"',
    ]
    assert len(rows) == PARTITION_COUNT // 4


async def test_the_ends_of_very_many_partitions_are_read_in_steps() -> None:
    calls = CallCount()
    turn = Turns(
        lambda: float(calls.count), free_seconds=STEP_CALLS_MAX / 4, slice_seconds=STEP_CALLS_MAX / 4
    )
    names = dict.fromkeys(TopicPartition("large", index) for index in range(PARTITION_COUNT))
    real, longest = asyncio.Handle._run, 0

    def run(handle: asyncio.Handle) -> None:
        nonlocal longest
        longest = max(longest, calls.of(lambda: real(handle)))

    asyncio.Handle._run = run  # type: ignore[method-assign]
    try:
        ends = await asyncio.create_task(
            known_ends(broker_of(large_topic()), names, turn.begin(), timeout_s=60)
        )
    finally:
        asyncio.Handle._run = real  # type: ignore[method-assign]
    assert longest <= STEP_CALLS_MAX
    assert calls.count > 10 * STEP_CALLS_MAX
    assert ends == {name: name.partition for name in names if name.partition % 4}
