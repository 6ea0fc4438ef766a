"""What `Markers` do wherever the partitions are led: on this broker, or on another that is asked with WriteTxnMarkers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.coordinators.marker_brokers import (
    NONE,
    OTHER,
    PRODUCER,
    THIRD,
    MarkerBroker,
    batch,
    image_of,
    peers,
    write_data,
)

from odradek.broker.coordinators.remote_transaction_markers import RemoteMarkers
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.transactions.markers import MarkerBatch, Markers


class World:
    """The leader of partition 0, and what writes its markers."""

    def __init__(self, broker: MarkerBroker, markers: Markers) -> None:
        self.broker = broker
        self.broker.image = image_of({0: OTHER, 1: OTHER})
        self.partition = broker.lead(0)
        self._markers = markers

    async def write(self, markers: MarkerBatch) -> dict[int, ErrorCode]:
        outcomes = await self._markers.write(markers)
        assert all(isinstance(name, TopicPartition) for name in outcomes)
        return {name.partition: code for name, code in outcomes.items()}


@pytest.fixture(params=["local", "remote"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    broker = MarkerBroker(tmp_path)
    remote = RemoteMarkers(lambda: peers(broker).ask)
    yield World(broker, broker.local if request.param == "local" else remote.at(OTHER))
    remote.close()


async def test_a_marker_ends_the_producers_transaction(world: World) -> None:
    write_data(world.partition)
    assert world.partition.ongoing_transaction(PRODUCER) == 0
    assert await world.write(batch(0)) == {0: NONE}
    assert world.partition.ongoing_transaction(PRODUCER) is None
    assert world.partition.last_stable_offset == 2


async def test_each_partition_has_its_own_outcome(world: World) -> None:
    assert await world.write(batch(0, 1, 7)) == {
        0: NONE,
        1: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }, "led here; not open here; not in the cluster"


async def test_a_leader_that_was_succeeded_writes_nothing(world: World) -> None:
    world.broker.image = image_of({0: THIRD})
    del world.broker.partitions[TopicPartition("t", 0)]
    assert await world.write(batch(0)) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.partition.log.end_offset == 0


async def test_the_marker_of_a_coordinator_that_was_succeeded_is_refused(world: World) -> None:
    write_data(world.partition)
    assert await world.write(batch(0, coordinator_epoch=5)) == {0: NONE}
    write_data(world.partition, epoch=1)
    late = batch(0, epoch=2, coordinator_epoch=4)
    assert await world.write(late) == {0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert world.partition.ongoing_transaction(PRODUCER) is not None


async def test_a_late_marker_does_not_end_the_next_transaction(world: World) -> None:
    write_data(world.partition)
    await world.write(batch(0, epoch=1))
    write_data(world.partition, epoch=1)
    assert await world.write(batch(0, epoch=1)) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert world.partition.ongoing_transaction(PRODUCER) is not None
