"""The transaction coordinator through the wire: both ways clients speak, zombies, timeouts, what a dead broker left."""

from __future__ import annotations

import asyncio
import shutil
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S, until
from tests.scenarios.transactions.transactional_producer import (
    CLASSIC,
    EPOCHS,
    SMALL,
    committed,
    coordinated,
    opened,
    stable,
)

from odradek.broker.coordinators.transactions import LocalMarkers
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.storage.directories.log_manager import LogManager
from odradek.transactions.markers import MarkerBatch


@pytest.fixture
async def wire(scene: Any) -> Any:
    return await opened(scene)


# -- the two flows


@pytest.mark.parametrize("version", [0, 1, CLASSIC, 4, EPOCHS])
async def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    wire: Any, make_fetch: Any, producer_of: Any, version: int
) -> None:
    producer = await producer_of(wire, version=version)
    for number in range(4):
        await producer.write(b"%d" % number)
        assert await producer.end(commit=number % 2 == 0) is ErrorCode.NONE
    assert await producer.settled() == "CompleteAbort"
    for partition in (0, 1):
        assert await stable(wire, make_fetch, "t", partition)
        assert await committed(wire, make_fetch, "t", partition) == [b"0", b"2"]


async def test_with_epochs_each_transaction_has_its_own(wire: Any, producer_of: Any) -> None:
    producer = await producer_of(wire, version=EPOCHS)
    identities = [(producer.producer_id, producer.epoch)]
    for _ in range(3):
        await producer.write(b"v")
        await producer.end()
        identities.append((producer.producer_id, producer.epoch))
    assert identities == [(producer.producer_id, epoch) for epoch in range(4)]


async def test_nothing_is_read_before_the_decision(wire: Any, make_fetch: Any, producer_of: Any) -> None:
    producer = await producer_of(wire)
    await producer.write(b"open")
    assert await committed(wire, make_fetch, "t") == []
    state = await producer.state()
    assert state.transaction_state == "Ongoing"
    assert state.topics[0].partitions == [0, 1]
    assert state.transaction_timeout_ms == 60_000
    assert state.transaction_start_time_ms > 0


@pytest.mark.parametrize(
    ("version", "other"), [(CLASSIC, "INVALID_TXN_STATE"), (EPOCHS, "INVALID_TXN_STATE")]
)
async def test_a_repeated_end_is_answered_by_the_same_outcome(
    wire: Any, producer_of: Any, version: int, other: str
) -> None:
    producer = await producer_of(wire, version=version)
    await producer.write(b"v")
    commit, abort = producer.end_request(commit=True), producer.end_request(commit=False)
    assert await producer.end(request=commit) is ErrorCode.NONE
    identity = (producer.producer_id, producer.epoch)
    assert await producer.end(request=commit) is ErrorCode.NONE
    assert (producer.producer_id, producer.epoch) == identity
    assert (await producer.end(request=abort)).name == other


async def test_a_late_end_does_not_complete_the_next_transaction(
    wire: Any, make_fetch: Any, producer_of: Any
) -> None:
    producer = await producer_of(wire, version=EPOCHS)
    await producer.write(b"first")
    late = [producer.end_request(commit=commit) for commit in (True, False)]
    await producer.end()
    await producer.write(b"second")
    other = await producer_of(wire, name="y", version=EPOCHS)
    other.name = "x"
    for request in late:
        assert await other.end(request=request) is ErrorCode.PRODUCER_FENCED
    assert await committed(wire, make_fetch, "t") == [b"first"]
    assert await producer.end(commit=False) is ErrorCode.NONE
    await producer.settled()
    assert await committed(wire, make_fetch, "t") == [b"first"]


async def test_an_abort_to_be_sure_ends_an_empty_transaction(wire: Any, producer_of: Any) -> None:
    producer = await producer_of(wire, version=EPOCHS)
    assert await producer.end(commit=False) is ErrorCode.NONE
    assert producer.epoch == 1
    assert await producer.settled() == "CompleteAbort"
    assert await producer.end(commit=True) is ErrorCode.INVALID_TXN_STATE
    classic = await producer_of(wire, name="classic")
    assert await classic.end(commit=False) is ErrorCode.INVALID_TXN_STATE


# -- zombies


@pytest.mark.parametrize("version", [CLASSIC, EPOCHS])
async def test_a_new_producer_aborts_and_fences_the_one_before(
    wire: Any, make_fetch: Any, producer_of: Any, version: int
) -> None:
    zombie = await producer_of(wire, version=version)
    await zombie.write(b"zombie")
    successor = await producer_of(wire, version=version)
    assert successor.producer_id == zombie.producer_id
    assert successor.epoch > zombie.epoch
    assert await zombie.send("t", b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.end() is ErrorCode.PRODUCER_FENCED
    assert await zombie.add("t", 0) == [ErrorCode.PRODUCER_FENCED]
    await successor.write(b"good")
    assert await successor.end() is ErrorCode.NONE
    await successor.settled()
    assert await committed(wire, make_fetch, "t") == [b"good"]


async def test_old_clients_hear_of_the_epoch_where_new_ones_are_fenced(wire: Any, producer_of: Any) -> None:
    zombie = await producer_of(wire)
    await zombie.write(b"zombie")
    await producer_of(wire)
    zombie.end_version = 1
    assert await zombie.end() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.add("t", 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await zombie.init(version=3, expected=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await zombie.init(version=4, expected=True) is ErrorCode.PRODUCER_FENCED
    for version, code in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)):
        request = AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=zombie.producer_id,
            producer_epoch=zombie.epoch,
            group_id="g",
        )
        assert (await wire.ask(request, version)).error_code == code


async def test_a_producer_goes_on_after_an_error_with_the_next_epoch(
    wire: Any, make_fetch: Any, producer_of: Any
) -> None:
    producer = await producer_of(wire)
    await producer.write(b"broken off")
    assert await producer.init(expected=True) is ErrorCode.NONE
    assert producer.epoch == 1
    assert (await producer.state()).transaction_state == "Empty"
    await producer.write(b"good")
    await producer.end()
    await producer.settled()
    assert await committed(wire, make_fetch, "t") == [b"good"]


# -- timeouts and expiry


@pytest.mark.parametrize("version", [CLASSIC, EPOCHS])
async def test_a_transaction_that_takes_too_long_is_aborted(
    scene: Any, make_fetch: Any, producer_of: Any, version: int
) -> None:
    await scene.start(**SMALL, transaction_abort_timed_out_transaction_cleanup_interval_ms="20")
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    producer = await producer_of(wire, version=version, transaction_timeout_ms=1_000)
    await producer.write(b"slow")
    await until(producer.state, holds=lambda state: state.transaction_state == "CompleteAbort")
    assert await stable(wire, make_fetch, "t")
    refused = await producer.end()
    expected = ErrorCode.PRODUCER_FENCED if version == CLASSIC else ErrorCode.INVALID_TXN_STATE
    assert refused is expected
    assert await committed(wire, make_fetch, "t") == []
    assert await producer.init(expected=True) is ErrorCode.NONE, "it may go on"


async def test_an_id_that_no_one_uses_is_forgotten(scene: Any, producer_of: Any) -> None:
    await scene.start(
        **SMALL,
        transactional_id_expiration_ms="50",
        transaction_remove_expired_transaction_cleanup_interval_ms="20",
    )
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    busy = await producer_of(wire, name="busy")
    while set(await busy.add("t", 0)) != {ErrorCode.NONE}:  # it expired before it began
        assert await busy.init() is ErrorCode.NONE
    idle = await producer_of(wire, name="idle")
    await until(idle.state, holds=lambda state: state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert await idle.add("t", 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert (await busy.state()).transaction_state == "Ongoing"


# -- what a broker left that died, or could not go on


class PausedMarkers:
    """Marker writing that stops after some partitions, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.write = LocalMarkers.write_one
        patch.setattr(LocalMarkers, "write_one", self._one(self))

    @staticmethod
    def _one(held: PausedMarkers) -> Any:
        async def write(markers: LocalMarkers, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
            if held.left == 0:
                held.reached.set()
                await held.go.wait()
            held.left -= 1 if held.left else 0
            return await held.write(markers, batch, name)

        return write


@pytest.mark.parametrize("version", [CLASSIC, EPOCHS])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("markers", [0, 1])
async def test_a_broker_that_died_in_the_middle_of_an_end_finishes_it(
    scene: Any,
    make_fetch: Any,
    producer_of: Any,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    commit: bool,
    markers: int,
) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    producer = await producer_of(wire, version=version)
    await producer.write(b"v")
    with monkeypatch.context() as patch:
        held = PausedMarkers(patch, after=markers)
        assert await producer.end(commit=commit) is ErrorCode.NONE
        async with asyncio.timeout(PATIENCE_S):
            await held.reached.wait()
        assert (await producer.state()).transaction_state.startswith("Prepare")
        shutil.copytree(scene.directory / "data", scene.directory / "copy" / "data")
        await scene.stop()
    scene.directory = scene.directory / "copy"
    await scene.start(**SMALL)
    producer.wire = wire = await scene.connect()
    assert await producer.settled() == ("CompleteCommit" if commit else "CompleteAbort")
    for partition in (0, 1):
        assert await stable(wire, make_fetch, "t", partition)
        assert await committed(wire, make_fetch, "t", partition) == ([b"v"] if commit else [])
    await producer.write(b"next")
    assert await producer.end() is ErrorCode.NONE


async def test_a_transaction_goes_on_after_a_restart(scene: Any, make_fetch: Any, producer_of: Any) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    producer = await producer_of(wire)
    await producer.write(b"before")
    await scene.stop()
    await scene.start(**SMALL)
    producer.wire = wire = await scene.connect()
    await producer.write(b"after")
    assert await producer.end() is ErrorCode.NONE
    await producer.settled()
    assert await committed(wire, make_fetch, "t") == [b"before", b"after"]


async def test_while_a_transaction_is_completed_the_next_must_wait(
    wire: Any, producer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await producer_of(wire)
    await producer.write(b"v")
    held = PausedMarkers(monkeypatch, after=1)
    await producer.end()
    async with asyncio.timeout(PATIENCE_S):
        await held.reached.wait()
    again = producer.end_request(commit=True)
    for request in (again, again.replace(committed=False)):
        for version in (CLASSIC, EPOCHS):
            response = await wire.ask(request, version)
            assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert (await wire.ask(init, 4)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    held.go.set()
    await producer.write(b"next")
    assert await producer.end() is ErrorCode.NONE


async def test_a_topic_deleted_meanwhile_holds_nothing_up(
    wire: Any, make_fetch: Any, producer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wire.create("gone")
    producer = await producer_of(wire)
    await producer.write(b"v")
    await producer.write(b"v", [0], topic="gone")
    held = PausedMarkers(monkeypatch, after=0)
    await producer.end()
    async with asyncio.timeout(PATIENCE_S):
        await held.reached.wait()
    await wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]), 6)
    held.go.set()
    assert await producer.settled() == "CompleteCommit"
    assert await committed(wire, make_fetch, "t") == [b"v"]


async def test_a_partition_that_is_offline_gets_its_marker_later(
    wire: Any, make_fetch: Any, producer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, other = await producer_of(wire), await producer_of(wire, name="other")
    await producer.write(b"v")
    real, refusals = LocalMarkers.write_one, []

    async def write(markers: LocalMarkers, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
        if name.partition == 1 and batch.producer_id == producer.producer_id and len(refusals) < 3:
            refusals.append(name)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return await real(markers, batch, name)

    monkeypatch.setattr(LocalMarkers, "write_one", write)
    await producer.end()
    await other.write(b"other", [0])
    assert await other.end() is ErrorCode.NONE
    assert await other.settled() == "CompleteCommit", "others are not held up"
    assert await producer.settled() == "CompleteCommit"
    assert len(refusals) == 3


async def test_a_transaction_is_ended_in_a_partition_whose_topic_is_just_being_made(
    scene: Any,
    wire: Any,
    producer_of: Any,
    make_fetch: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is led already, and the image that holds it is shown only once all is open: it must not count as deleted."""
    others_open = asyncio.Event()
    open_log = LogManager.open_log

    async def slowly(self: LogManager, name: TopicPartition, *args: Any, **options: Any) -> Any:
        if name == ("made", 1):
            await others_open.wait()
        return await open_log(self, name, *args, **options)

    monkeypatch.setattr(LogManager, "open_log", slowly)
    producer = await producer_of(wire, version=EPOCHS)
    creating = asyncio.ensure_future((await scene.connect()).create("made", partitions=2))
    await until(lambda: TopicPartition("made", 0) in scene.broker.context.replicas.partitions)
    await producer.write(b"one", (0,), "made")
    assert await producer.end() is ErrorCode.NONE
    assert await producer.settled() == "CompleteCommit"
    others_open.set()
    assert (await creating).error_code == 0
    assert await stable(wire, make_fetch, "made")
    assert await committed(wire, make_fetch, "made") == [b"one"]
