"""Markers over a cluster: which broker writes which, and what its answers, or its silence, mean."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinators import transaction_markers as markers_module
from odradek.broker.coordinators.transaction_markers import ClusterMarkers, LocalMarkers
from odradek.broker.handlers.transactions.write_txn_markers import SERVED
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, LeaderEpoch, TopicPartition
from odradek.protocol import Message, decode, encode
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.records import BatchBuilder, split_batches
from odradek.replication.in_sync import IsrProposal
from odradek.replication.partition import Partition, ReplicationContext
from odradek.runtime.real import real_runtime
from odradek.runtime.real_clock import SystemClock
from odradek.runtime.turns import Turns
from odradek.storage.log.log import Log
from odradek.storage.producers.verification import Guard
from odradek.testing.guarded_disk import off_loop
from odradek.transactions.markers import MarkerBatch
from odradek.transactions.state import TransactionVersion

HERE, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
NOW_MS = 1_700_000_000_000
PRODUCER = 7
NONE = ErrorCode.NONE


class Flushes:
    """Makes nothing durable by itself."""

    def request(self, partition: Partition) -> None: ...


class NoProposals:
    def propose(self, partition: Partition, proposal: IsrProposal) -> None: ...


class Broker:
    """What marker writing needs of a broker: partitions that it leads, over logs on disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.partitions: dict[TopicPartition, Partition] = {}
        self.image = image_of({})
        self.local = LocalMarkers(self, self, SystemClock(), lambda: self.image)  # type: ignore[arg-type]

    def lead(self, index: int, *, durable: bool = True, followers: tuple[BrokerId, ...] = ()) -> Partition:
        name = TopicPartition("t", index)
        config = LogConfig(flush_before_ack=not durable)
        log = Log.open(
            real_runtime(),
            str(self._directory / f"t-{index}"),
            config,
            topic_partition=name,
            clean=True,
            recovery_point=0,
        )
        member = ReplicationContext(broker_id=OTHER, lag_s_max=30.0, proposals=NoProposals())
        partition = Partition(name, UUID(int=1), log, LeaderEpoch(0), Flushes(), member=member)
        state = PartitionImage(
            leader=OTHER, leader_epoch=LeaderEpoch(0), replicas=(OTHER, *followers), isr=(OTHER,)
        )
        partition.lead(state, {OTHER: 1}, now=0.0)
        self.partitions[name] = partition
        return partition

    def leader(self, topic: str, index: int) -> Partition:
        partition = self.partitions.get(TopicPartition(topic, index))
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def has(self, topic: str) -> bool:
        return False

    async def serve(self, request: WriteTxnMarkersRequest) -> Any:
        runtime = SimpleNamespace(clock=SystemClock())
        turns = Turns(SystemClock().monotonic)
        parts: Any = SimpleNamespace(
            coordinators=self, replicas=self, runtime=runtime, image=self.image, turns=turns
        )
        return await SERVED.handle(parts, None, request)  # type: ignore[arg-type, misc]


class Wire:
    """Between the broker of the test and others: what is asked goes through its bytes."""

    def __init__(self, **brokers: Broker) -> None:
        self.brokers = {OTHER: brokers.get("other"), THIRD: brokers.get("third")}
        self.requests: list[tuple[BrokerId, WriteTxnMarkersRequest]] = []

    async def ask(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Message:
        assert api_key == 27
        arrived = _through_bytes(WriteTxnMarkersRequest, request)
        self.requests.append((broker, arrived))
        other = self.brokers[broker]
        if other is None:
            raise OdradekError(f"broker {broker} is unreachable")
        answer: Message = _through_bytes(WriteTxnMarkersResponse, await other.serve(arrived))
        return answer


def _through_bytes(cls: Any, message: Message) -> Any:
    return decode(cls, 2, encode(message, 2))[0]


def image_of(leaders: dict[int, BrokerId]) -> ClusterImage:
    partitions = tuple(
        PartitionImage(leader=leaders[index], leader_epoch=LeaderEpoch(0), replicas=(HERE,), isr=(HERE,))
        for index in sorted(leaders)
    )
    empty = ClusterImage(
        version=0, cluster_id="c", controller_id=HERE, brokers=(), topics={}, topics_by_id={}
    )
    topic = TopicImage(name="t", topic_id=UUID(int=1), partitions=partitions)
    return empty.with_topic(topic) if partitions else empty


def batch(
    *indexes: int,
    topic: str = "t",
    producer_id: int = PRODUCER,
    epoch: int = 1,
    coordinator_epoch: int = 4,
    version: TransactionVersion = TransactionVersion.EPOCH_FOR_EACH,
) -> MarkerBatch:
    return MarkerBatch(
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=True,
        coordinator_epoch=coordinator_epoch,
        version=version,
        partitions=tuple(TopicPartition(topic, index) for index in indexes),
    )


def write_data(partition: Partition, *, epoch: int = 0) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, b"k", b"v")
    batches = split_batches(
        builder.build(producer_id=PRODUCER, producer_epoch=epoch, base_sequence=0, transactional=True)
    )
    guard = partition.leader().begin_verification(batches[0][0], bumps_epoch=True, now_ms=NOW_MS)
    assert isinstance(guard, Guard)
    partition.leader().append(batches, now_ms=NOW_MS, guard=guard)


@pytest.fixture
def here(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "here")


@pytest.fixture
def other(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "other")


def cluster(here: Broker, wire: Wire, leaders: dict[int, BrokerId]) -> ClusterMarkers:
    here.image = image_of(leaders)
    for broker in wire.brokers.values():
        if broker is not None:
            broker.image = here.image
    return ClusterMarkers(here.local, lambda: HERE, lambda: here.image, lambda: wire.ask)


def codes(outcomes: dict[TopicPartition, ErrorCode]) -> dict[int, ErrorCode]:
    return {name.partition: code for name, code in outcomes.items()}


async def test_each_partition_gets_its_marker_where_it_is_led(here: Broker, other: Broker) -> None:
    mine, theirs = here.lead(0), other.lead(1)
    write_data(mine)
    write_data(theirs)
    wire = Wire(other=other)
    markers = cluster(here, wire, {0: HERE, 1: OTHER, 2: THIRD})
    outcomes = codes(await markers.write(batch(0, 1, 2)))
    assert outcomes == {0: NONE, 1: NONE, 2: ErrorCode.NETWORK_EXCEPTION}
    for partition in (mine, theirs):
        assert partition.ongoing_transaction(PRODUCER) is None
        assert partition.last_stable_offset == 2


async def test_a_broker_alone_asks_nobody(here: Broker) -> None:
    write_data(here.lead(0))
    wire = Wire()
    assert codes(await cluster(here, wire, {0: HERE}).write(batch(0))) == {0: NONE}
    assert not wire.requests


async def test_what_nobody_leads_is_asked_again_and_what_does_not_exist_is_not(here: Broker) -> None:
    markers = cluster(here, Wire(), {0: NO_LEADER})
    assert codes(await markers.write(batch(0, 1))) == {
        0: ErrorCode.LEADER_NOT_AVAILABLE,
        1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set((await markers.write(batch(0, topic="gone"))).values()) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def test_a_leader_that_has_not_heard_of_a_topic_is_asked_again(here: Broker, other: Broker) -> None:
    markers = cluster(here, Wire(other=other), {0: OTHER})
    other.image = image_of({})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    other.image = here.image
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, "not open yet"
    here.image = image_of({})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_broker_that_is_asked_never_asks_another(here: Broker, other: Broker) -> None:
    """Two brokers whose images differ would pass a marker to and fro."""
    markers = cluster(here, Wire(other=other), {0: OTHER})
    other.image = image_of({0: THIRD})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_the_marker_of_a_coordinator_that_was_succeeded_is_refused(here: Broker, other: Broker) -> None:
    theirs = other.lead(0)
    write_data(theirs)
    markers = cluster(here, Wire(other=other), {0: OTHER})
    assert codes(await markers.write(batch(0, coordinator_epoch=5))) == {0: NONE}
    write_data(theirs, epoch=1)
    late = batch(0, epoch=2, coordinator_epoch=4)
    assert codes(await markers.write(late)) == {0: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert theirs.ongoing_transaction(PRODUCER) is not None


async def test_a_late_marker_does_not_end_the_next_transaction(here: Broker, other: Broker) -> None:
    theirs = other.lead(0)
    write_data(theirs)
    markers = cluster(here, Wire(other=other), {0: OTHER})
    await markers.write(batch(0, epoch=1))
    write_data(theirs, epoch=1)
    assert codes(await markers.write(batch(0, epoch=1))) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert theirs.ongoing_transaction(PRODUCER) is not None


async def test_a_marker_counts_only_when_every_replica_in_sync_has_it(
    here: Broker, other: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = other.lead(0, durable=False)
    write_data(theirs)
    markers = cluster(here, Wire(other=other), {0: OTHER})
    monkeypatch.setattr(markers_module, "_DURABLE_SECONDS_MAX", 0.0)
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.REQUEST_TIMED_OUT}
    monkeypatch.undo()
    waiting = asyncio.get_running_loop().create_task(markers.write(batch(0)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done(), "it is there already, and may be lost yet"
    flush = theirs.log.flush_job()
    assert flush is not None
    with off_loop():
        flush.run()
    theirs.log.flushed(flush)
    theirs.flushed()
    assert codes(await waiting) == {0: NONE}


async def test_too_few_replicas_in_sync_are_noticed_before_anything_is_written(
    here: Broker, other: Broker
) -> None:
    theirs = other.lead(0, followers=(THIRD,))
    write_data(theirs)
    theirs.reconfigure(LogConfig(flush_before_ack=False, min_insync_replicas=2))
    end_offset = theirs.log.end_offset
    outcomes = await cluster(here, Wire(other=other), {0: OTHER}).write(batch(0))
    assert codes(outcomes) == {0: ErrorCode.NOT_ENOUGH_REPLICAS}
    assert theirs.log.end_offset == end_offset


async def test_markers_of_many_transactions_share_a_request(here: Broker, other: Broker) -> None:
    other.lead(0)
    other.lead(1)
    wire = Wire(other=other)
    markers = cluster(here, wire, {0: OTHER, 1: OTHER})
    writes = [markers.write(batch(0, 1, producer_id=producer)) for producer in range(20)]
    outcomes = await asyncio.gather(*writes)
    assert all(codes(one) == {0: NONE, 1: NONE} for one in outcomes)
    assert len(wire.requests) == 1
    assert [one.producer_id for one in wire.requests[0][1].markers] == list(range(20))


async def test_two_markers_of_one_producer_keep_their_order(other: Broker) -> None:
    theirs = other.lead(0)
    other.image = image_of({0: OTHER})

    def marker(epoch: int) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=PRODUCER,
            producer_epoch=epoch,
            transaction_result=True,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=4,
            transaction_version=2,
        )

    response = await other.serve(WriteTxnMarkersRequest(markers=[marker(1), marker(2), marker(1)]))
    results = [one.topics[0].partitions[0].error_code for one in response.markers]
    assert results == [NONE, NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
    state = theirs.log.producers.get(PRODUCER)
    assert state is not None
    assert state.epoch == 2


async def test_a_closed_coordinator_waits_for_no_answer(here: Broker) -> None:
    markers = cluster(here, Wire(), {0: OTHER})

    async def never(*_: Any, **__: Any) -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    markers._ask = lambda: never
    waiting = asyncio.get_running_loop().create_task(markers.write(batch(0)))
    for _ in range(5):
        await asyncio.sleep(0)
    markers.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_request_whose_sender_leaves_at_once_leaves_nothing_begun(other: Broker) -> None:
    partition = other.lead(0)
    end = partition.log.end_offset
    asked = asyncio.create_task(other.local.write_for_another(batch(0)))
    await asyncio.sleep(0)  # it is under way, and has begun with no partition

    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gc.collect()  # a coroutine that nobody awaited would say so, and fail the test

    assert partition.log.end_offset == end
