"""Markers over a cluster: which broker writes which, and what its answers, or its silence, mean."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest
from tests.contract.coordinators.brokers import PeerRequests
from tests.contract.coordinators.marker_brokers import (
    HERE,
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

from odradek.broker.coordinators import transaction_markers as markers_module
from odradek.broker.coordinators.transaction_markers import ClusterMarkers
from odradek.cluster.image import NO_LEADER
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId, TopicPartition
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.testing.guarded_disk import off_loop


@pytest.fixture
def here(tmp_path: Path) -> MarkerBroker:
    return MarkerBroker(tmp_path / "here")


@pytest.fixture
def other(tmp_path: Path) -> MarkerBroker:
    return MarkerBroker(tmp_path / "other")


def cluster(
    here: MarkerBroker,
    other: MarkerBroker | None,
    leaders: dict[int, BrokerId],
    reached: PeerRequests | None = None,
) -> ClusterMarkers:
    here.image = image_of(leaders)
    if other is not None:
        other.image = here.image
    requests = reached or peers(other)
    return ClusterMarkers(here.local, lambda: HERE, lambda: here.image, lambda: requests.ask)


def codes(outcomes: dict[TopicPartition, ErrorCode]) -> dict[int, ErrorCode]:
    return {name.partition: code for name, code in outcomes.items()}


async def test_each_partition_gets_its_marker_where_it_is_led(
    here: MarkerBroker, other: MarkerBroker
) -> None:
    mine, theirs = here.lead(0), other.lead(1)
    write_data(mine)
    write_data(theirs)
    reached = peers(other)
    markers = cluster(here, other, {0: HERE, 1: OTHER, 2: THIRD}, reached)
    outcomes = codes(await markers.write(batch(0, 1, 2)))
    assert outcomes == {0: NONE, 1: NONE, 2: ErrorCode.NETWORK_EXCEPTION}
    for partition in (mine, theirs):
        assert partition.ongoing_transaction(PRODUCER) is None
        assert partition.last_stable_offset == 2


async def test_a_broker_alone_asks_no_one(here: MarkerBroker) -> None:
    write_data(here.lead(0))
    reached = peers()
    assert codes(await cluster(here, None, {0: HERE}, reached).write(batch(0))) == {0: NONE}
    assert not reached.requests


async def test_what_no_one_leads_is_asked_again_and_what_does_not_exist_is_not(here: MarkerBroker) -> None:
    markers = cluster(here, None, {0: NO_LEADER})
    assert codes(await markers.write(batch(0, 1))) == {
        0: ErrorCode.LEADER_NOT_AVAILABLE,
        1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set((await markers.write(batch(0, topic="gone"))).values()) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def test_a_leader_that_has_not_heard_of_a_topic_is_asked_again(
    here: MarkerBroker, other: MarkerBroker
) -> None:
    markers = cluster(here, other, {0: OTHER})
    other.image = image_of({})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    other.image = here.image
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, "not open yet"
    here.image = image_of({})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_broker_that_is_asked_never_asks_another(here: MarkerBroker, other: MarkerBroker) -> None:
    """Two brokers whose images differ would pass a marker to and fro."""
    markers = cluster(here, other, {0: OTHER})
    other.image = image_of({0: THIRD})
    assert codes(await markers.write(batch(0))) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}


async def test_a_marker_counts_only_when_every_replica_in_sync_has_it(
    here: MarkerBroker, other: MarkerBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = other.lead(0, durable=False)
    write_data(theirs)
    markers = cluster(here, other, {0: OTHER})
    monkeypatch.setattr(markers_module, "DURABLE_SECONDS_MAX", 0.0)
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
    here: MarkerBroker, other: MarkerBroker
) -> None:
    theirs = other.lead(0, followers=(THIRD,))
    write_data(theirs)
    theirs.reconfigure(LogConfig(flush_before_ack=False, min_insync_replicas=2))
    end_offset = theirs.log.end_offset
    outcomes = await cluster(here, other, {0: OTHER}).write(batch(0))
    assert codes(outcomes) == {0: ErrorCode.NOT_ENOUGH_REPLICAS}
    assert theirs.log.end_offset == end_offset


async def test_markers_of_many_transactions_share_a_request(here: MarkerBroker, other: MarkerBroker) -> None:
    other.lead(0)
    other.lead(1)
    reached = peers(other)
    markers = cluster(here, other, {0: OTHER, 1: OTHER}, reached)
    writes = [markers.write(batch(0, 1, producer_id=producer)) for producer in range(20)]
    outcomes = await asyncio.gather(*writes)
    assert all(codes(outcome) == {0: NONE, 1: NONE} for outcome in outcomes)
    assert len(reached.requests) == 1
    assert [marker.producer_id for marker in reached.requests[0][1].markers] == list(range(20))


async def test_two_markers_of_one_producer_keep_their_order(other: MarkerBroker) -> None:
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
    results = [marker.topics[0].partitions[0].error_code for marker in response.markers]
    assert results == [NONE, NONE, ErrorCode.INVALID_PRODUCER_EPOCH]
    state = theirs.log.producers.get(PRODUCER)
    assert state is not None
    assert state.epoch == 2


async def test_a_closed_coordinator_waits_for_no_answer(here: MarkerBroker) -> None:
    silent = PeerRequests({})
    silent.held = asyncio.Event()
    markers = cluster(here, None, {0: OTHER}, silent)
    waiting = asyncio.get_running_loop().create_task(markers.write(batch(0)))
    for _ in range(5):
        await asyncio.sleep(0)
    markers.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_request_whose_sender_leaves_at_once_leaves_nothing_begun(other: MarkerBroker) -> None:
    partition = other.lead(0)
    end = partition.log.end_offset
    asked = asyncio.create_task(other.local.write_for_another(batch(0)))
    await asyncio.sleep(0)  # it is under way, and has begun with no partition

    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gc.collect()  # a coroutine that no one awaited would say so, and fail the test

    assert partition.log.end_offset == end
