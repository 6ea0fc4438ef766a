"""Watches the brokers of a simulated cluster from outside while they work, and compares them when they rest.

While they work: a replica's high watermark never goes back as long as it is open, and never lies above the log's end;
in one leader epoch of a partition one broker leads. When they rest: every broker knows the same cluster, all replicas are in
sync, stable to the end, and byte for byte the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from uuid import UUID

from tests.simulation.cluster.keeper import ClusterKeeper
from tests.simulation.cluster.view import ClusterView, image_of, replicas_of
from tests.simulation.replica_contents import Content, content_of, difference

from odradek.cluster.image import ClusterImage
from odradek.model.ids import TopicPartition
from odradek.replication.partition import Partition
from odradek.testing.sim.failures import ViolationError

_LOOK_S = 0.05


class ClusterMonitor:
    """`watch` until `stop`; `settled` when all should be well again."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._watermarks: dict[Partition, int] = {}
        self._leaders: dict[tuple[UUID, int, int], int] = {}
        self.is_over = False

    async def watch(self) -> None:
        while not self.is_over:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        for keeper, broker in self._view.up():
            for partition in replicas_of(broker).values():
                self._look_at(keeper, partition)

    def _look_at(self, keeper: ClusterKeeper, partition: Partition) -> None:
        name, high_watermark = partition.name, partition.high_watermark
        where = f"{name} on {keeper.host.name}"
        before = self._watermarks.get(partition, 0)
        if high_watermark < before:
            raise ViolationError(f"{where}: the high watermark went from {before} to {high_watermark}")
        self._watermarks[partition] = high_watermark
        if partition.retired is None and high_watermark > partition.log.end_offset:
            raise ViolationError(
                f"{where}: the high watermark is {high_watermark}, the log ends at {partition.log.end_offset}"
            )
        if partition.is_leader:
            term = (partition.topic_id, name.partition, partition.leader_epoch)
            leader = self._leaders.setdefault(term, keeper.broker_id)
            if leader != keeper.broker_id:
                raise ViolationError(
                    f"{name}: {leader} and {keeper.broker_id} both lead in epoch {partition.leader_epoch}"
                )

    # -- at rest

    async def settled(self, seconds_max: float) -> None:
        """Wait until everything is as it should be. ViolationError says what is not, when it takes too long."""
        end_s = asyncio.get_running_loop().time() + seconds_max
        while (problem := self._problem()) is not None:
            if asyncio.get_running_loop().time() > end_s:
                raise ViolationError(f"stuck: {seconds_max:.0f} s after the last fault: {problem}")
            await asyncio.sleep(0.2)

    async def taken_over(self, gone: ClusterKeeper, seconds_max: float) -> None:
        """Wait until nothing is led by a broker that is dead. ViolationError when it takes too long."""
        end_s = asyncio.get_running_loop().time() + seconds_max
        while (problem := self._still_led_by(gone)) is not None:
            if asyncio.get_running_loop().time() > end_s:
                raise ViolationError(f"stuck: {seconds_max:.0f} s after {gone.host.name} died: {problem}")
            await asyncio.sleep(0.2)

    def _still_led_by(self, gone: ClusterKeeper) -> str | None:
        image = self._view.image()
        if image is None:
            return "no one knows the cluster"
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                others = [broker for broker in partition.isr if broker != gone.broker_id]
                if others and partition.leader not in others:
                    return f"{topic.name}-{index}: leader {partition.leader}, in sync {partition.isr} of {partition.replicas}"
        return None

    def _problem(self) -> str | None:
        for keeper in self._view.keepers:
            if not keeper.is_up:
                return f"{keeper.host.name} is not up: {keeper.outcome!r}"
        return next(self._problems(), None)

    def _problems(self) -> Iterator[str]:
        newest = self._view.image()
        assert newest is not None
        yield from self._problems_of_image(newest)
        for keeper, broker in self._view.up():
            image = image_of(broker)
            if _essence(image) != _essence(newest):
                yield f"{keeper.host.name} is not as far as the others: {_essence(image)}, {_essence(newest)}"
            yield from self._problems_of_replicas(keeper, newest)

    def _problems_of_image(self, image: ClusterImage) -> Iterator[str]:
        known = sorted(broker.broker_id for broker in image.brokers)
        wanted = sorted(keeper.broker_id for keeper in self._view.keepers)
        if known != wanted:
            yield f"brokers {known} are registered, not {wanted}"
        for topic in image.topics.values():
            for index, broker in enumerate(topic.partitions):
                if sorted(broker.isr) != sorted(broker.replicas) or broker.leader not in broker.replicas:
                    yield f"{topic.name}-{index}: leader {broker.leader}, in sync {broker.isr} of {broker.replicas}"
                if broker.adding or broker.removing:
                    yield f"{topic.name}-{index}: adding {broker.adding}, removing {broker.removing}"

    def _problems_of_replicas(self, keeper: ClusterKeeper, image: ClusterImage) -> Iterator[str]:
        assert keeper.broker is not None
        replicas = replicas_of(keeper.broker)
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if keeper.broker_id not in partition.replicas:
                    continue
                held = replicas.get(TopicPartition(topic.name, index))
                where = f"{topic.name}-{index} on {keeper.host.name}"
                if held is None or held.topic_id != topic.topic_id:
                    yield f"{where} is not open"
                elif held.is_leader != (partition.leader == keeper.broker_id):
                    yield f"{where}: it thinks otherwise of leading than the image, where {partition.leader} leads"
                elif not held.last_stable_offset == held.high_watermark == held.log.end_offset:
                    yield (
                        f"{where}: stable to {held.last_stable_offset}, high watermark {held.high_watermark}, "
                        f"end {held.log.end_offset}"
                    )

    def compare_replicas(self) -> None:
        """At rest: every replica of a partition holds the same bytes; of a compacted one, the same newest values."""
        image = self._view.image()
        assert image is not None
        for topic in image.topics.values():
            for index in range(len(topic.partitions)):
                self._compare(TopicPartition(topic.name, index))

    def _compare(self, name: TopicPartition) -> None:
        first: tuple[str, Content] | None = None
        for keeper, broker in self._view.up():
            held = replicas_of(broker).get(name)
            if held is None:
                continue
            content = keeper.host.name, content_of(held)
            if first is None:
                first = content
            elif content[1] != first[1]:
                raise ViolationError(
                    f"{name}: {first[0]} and {content[0]} differ: {difference(first[1], content[1])}"
                )


def _essence(image: ClusterImage | None) -> object:
    """What all brokers must agree upon."""
    if image is None:
        return None
    topics = [
        (name, str(topic.topic_id), [(p.leader, p.leader_epoch, p.partition_epoch) for p in topic.partitions])
        for name, topic in sorted(image.topics.items())
    ]
    return (
        image.controller_id,
        image.controller_epoch,
        sorted(broker.broker_id for broker in image.brokers),
        topics,
    )
