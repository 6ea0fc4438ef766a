"""The transaction coordinator through the wire: both ways clients speak, zombies, timeouts, what a dead broker left."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from odradek.broker.coordinators.transactions import LocalMarkers
from odradek.model.errors import ErrorCode
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.transactions.end_txn import EndTxnRequest
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.records import data_batches, decode_batch, split_batches
from odradek.storage.directories.log_manager import LogManager
from odradek.transactions.markers import MarkerBatch

READ_COMMITTED = 1
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS}
CLASSIC, EPOCHS = 3, 5
"""Versions of EndTxn."""
SMALL = {"transaction_state_log_num_partitions": "3"}


class Producer:
    """A transactional producer that says exactly what it is told to say."""

    def __init__(self, wire: Any, batch_of: Callable[..., bytearray], name: str, end_version: int) -> None:
        self.wire = wire
        self.batch_of = batch_of
        self.name = name
        self.end_version = end_version
        self.sequences: dict[TopicPartition, int] = {}
        self.producer_id = self.epoch = -1

    async def init(self, *, version: int = 5, expected: bool = False, **changes: Any) -> ErrorCode:
        fields: dict[str, Any] = {"transactional_id": self.name, "transaction_timeout_ms": 60_000} | changes
        if expected:
            fields |= {"producer_id": self.producer_id, "producer_epoch": self.epoch}
        response = await self.until_timeout(
            lambda: self.wire.call("InitProducerId", version, InitProducerIdRequest(**fields))
        )
        if response.error_code == 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode.of(response.error_code)

    async def until_timeout(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Until the coordinator is there, and done with what was before."""
        async with asyncio.timeout(20):
            while (response := await call()).error_code in BUSY:
                await asyncio.sleep(0.01)
        return response

    async def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        async with asyncio.timeout(20):
            while True:
                response = await self.wire.call("AddPartitionsToTxn", version, request)
                (found,) = response.results_by_topic_v3_and_below
                codes = [ErrorCode.of(one.partition_error_code) for one in found.results_by_partition]
                if not BUSY & set(codes):
                    return codes
                await asyncio.sleep(0.01)

    async def send(self, topic: str, value: bytes, partition: int = 0) -> ErrorCode:
        name = TopicPartition(topic, partition)
        sequence = self.sequences.get(name, 0)
        batch = self.batch_of(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
        version = 12 if self.end_version >= EPOCHS else 9
        response = await self.wire.call("Produce", version, request)
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequences[name] = sequence + 1
        return code

    async def write(self, value: bytes, partitions: Iterable[int] = (0, 1), topic: str = "t") -> None:
        """One record in each partition, as part of the transaction."""
        if self.end_version < EPOCHS:
            assert set(await self.add(topic, *partitions)) == {ErrorCode.NONE}
        for partition in partitions:
            # A batch may come before the coordinator is done with the last transaction.
            async with asyncio.timeout(20):
                while (code := await self.send(topic, value, partition)) in BUSY:
                    await asyncio.sleep(0.01)
            assert code is ErrorCode.NONE

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    async def end(self, *, commit: bool = True, request: EndTxnRequest | None = None) -> ErrorCode:
        asked = request or self.end_request(commit=commit)
        response = await self.until_timeout(lambda: self.wire.call("EndTxn", self.end_version, asked))
        if response.error_code == 0 and self.end_version >= EPOCHS:
            if response.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return ErrorCode.of(response.error_code)

    async def state(self) -> Any:
        return await described(self.wire, self.name)

    async def settled(self) -> str:
        """The state, once no transaction is being completed."""
        async with asyncio.timeout(20):
            while True:
                one = await self.state()
                if one.error_code not in BUSY and not one.transaction_state.startswith("Prepare"):
                    return str(one.transaction_state)
                await asyncio.sleep(0.01)


async def described(wire: Any, name: str) -> Any:
    response = await wire.call(
        "DescribeTransactions", 0, DescribeTransactionsRequest(transactional_ids=[name])
    )
    (one,) = response.transaction_states
    return one


async def committed(wire: Any, make_fetch: Any, topic: str, partition: int = 0) -> list[bytes]:
    """What a reader of committed records gets, up to the last stable offset."""
    found: list[bytes] = []
    offset = 0
    while True:
        request = make_fetch(topic, offset, partition=partition).replace(isolation_level=READ_COMMITTED)
        data = (await wire.call("Fetch", 11, request)).responses[0].partitions[0]
        batches = split_batches(data.records)
        if not batches:
            assert offset == data.last_stable_offset
            return found
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        for header, batch in data_batches(batches, aborted=aborted):
            found += [record.value or b"" for record in decode_batch(batch, header)]
        offset = batches[-1][0].next_offset


async def stable(wire: Any, make_fetch: Any, topic: str, partition: int = 0) -> bool:
    """Whether no transaction is open on the partition."""
    data = (
        (await wire.call("Fetch", 11, make_fetch(topic, 0, partition=partition))).responses[0].partitions[0]
    )
    return bool(data.last_stable_offset == data.high_watermark)


async def coordinated(wire: Any, name: str = "x") -> None:
    """Make `__transaction_state`, as a client's FindCoordinator does."""
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    response = await wire.call("FindCoordinator", 6, request)
    assert response.coordinators[0].error_code == 0


@pytest.fixture
async def wire(scene: Any) -> Any:
    await scene.start(**SMALL)
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    return wire


@pytest.fixture
def producer_of(make_batch: Callable[..., bytearray]) -> Callable[..., Awaitable[Producer]]:
    async def make(wire: Any, name: str = "x", version: int = CLASSIC, **changes: Any) -> Producer:
        producer = Producer(wire, make_batch, name, version)
        assert await producer.init(**changes) is ErrorCode.NONE
        return producer

    return make


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


async def test_old_clients_are_told_of_the_epoch_where_new_ones_are_fenced(
    wire: Any, producer_of: Any
) -> None:
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
        assert (await wire.call("AddOffsetsToTxn", version, request)).error_code == code


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
    async with asyncio.timeout(20):
        while (await producer.state()).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.01)
    assert await stable(wire, make_fetch, "t")
    refused = await producer.end()
    expected = ErrorCode.PRODUCER_FENCED if version == CLASSIC else ErrorCode.INVALID_TXN_STATE
    assert refused is expected
    assert await committed(wire, make_fetch, "t") == []
    assert await producer.init(expected=True) is ErrorCode.NONE, "it may go on"


async def test_an_id_that_nobody_uses_is_forgotten(scene: Any, producer_of: Any) -> None:
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
    async with asyncio.timeout(20):
        while (await idle.state()).error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            await asyncio.sleep(0.01)
    assert await idle.add("t", 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert (await busy.state()).transaction_state == "Ongoing"


# -- what a broker left that died, or could not go on


class Held:
    """Marker writing that stops after some partitions, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int) -> None:
        self._left = after
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self._write = LocalMarkers._write_one
        patch.setattr(LocalMarkers, "_write_one", self._one(self))

    @staticmethod
    def _one(held: Held) -> Any:
        async def write(markers: LocalMarkers, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
            if held._left == 0:
                held.reached.set()
                await held.go.wait()
            held._left -= 1 if held._left else 0
            return await held._write(markers, batch, name)

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
        held = Held(patch, after=markers)
        assert await producer.end(commit=commit) is ErrorCode.NONE
        async with asyncio.timeout(20):
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
    held = Held(monkeypatch, after=1)
    await producer.end()
    async with asyncio.timeout(20):
        await held.reached.wait()
    again = producer.end_request(commit=True)
    for request in (again, again.replace(committed=False)):
        for version in (CLASSIC, EPOCHS):
            answer = await wire.call("EndTxn", version, request)
            assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert (await wire.call("InitProducerId", 4, init)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
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
    held = Held(monkeypatch, after=0)
    await producer.end()
    async with asyncio.timeout(20):
        await held.reached.wait()
    await wire.call("DeleteTopics", 6, DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]))
    held.go.set()
    assert await producer.settled() == "CompleteCommit"
    assert await committed(wire, make_fetch, "t") == [b"v"]


async def test_a_partition_that_is_offline_gets_its_marker_later(
    wire: Any, make_fetch: Any, producer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, other = await producer_of(wire), await producer_of(wire, name="other")
    await producer.write(b"v")
    real, refusals = LocalMarkers._write_one, []

    async def write(markers: LocalMarkers, batch: MarkerBatch, name: TopicPartition) -> ErrorCode:
        if name.partition == 1 and batch.producer_id == producer.producer_id and len(refusals) < 3:
            refusals.append(name)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return await real(markers, batch, name)

    monkeypatch.setattr(LocalMarkers, "_write_one", write)
    await producer.end()
    await other.write(b"other", [0])
    assert await other.end() is ErrorCode.NONE
    assert await other.settled() == "CompleteCommit", "others are not held up"
    assert await producer.settled() == "CompleteCommit"
    assert len(refusals) == 3
    assert await committed(wire, make_fetch, "t", 1) == [b"v"]


# -- what bad requests get


@pytest.mark.parametrize(
    ("changes", "version", "code"),
    [
        ({"transactional_id": ""}, 5, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 40_000}, 5, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, 5, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": -1}, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, 5, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, 5, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, 5, ErrorCode.INVALID_REQUEST),
        ({"enable_2pc": True}, 6, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared_txn": True}, 6, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_bad_terms_are_refused(
    wire: Any, make_batch: Any, changes: dict[str, Any], version: int, code: ErrorCode
) -> None:
    producer = Producer(wire, make_batch, "x", CLASSIC)
    if len(changes.get("transactional_id", "")) > 32_767:
        request = InitProducerIdRequest(transaction_timeout_ms=1000, **changes)
        try:
            response = await wire.call("InitProducerId", version, request)
        except (ConnectionError, EOFError, asyncio.IncompleteReadError):
            return  # the wire has no longer strings
        assert response.error_code == code
        return
    assert await producer.init(version=version, **changes) is code


async def test_an_id_without_a_coordinator_is_told_to_look_for_one(scene: Any) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert (await wire.call("InitProducerId", 4, request)).error_code == ErrorCode.NOT_COORDINATOR


async def test_one_partition_that_may_not_join_keeps_the_others_out(wire: Any, producer_of: Any) -> None:
    producer = await producer_of(wire)
    assert await producer.add("t", 0, 7) == [
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert await producer.add("__transaction_state", 0) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (await producer.state()).transaction_state == "Empty"
    producer.producer_id += 1
    assert await producer.add("t", 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await producer.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("version", [4, 5])
async def test_brokers_add_and_verify_several_transactions_at_once(
    wire: Any, producer_of: Any, version: int
) -> None:
    one, two = await producer_of(wire, name="one"), await producer_of(wire, name="two")

    def entry(producer: Producer, *, verify_only: bool, topic: str = "t") -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )

    async def codes(*entries: AddPartitionsToTxnTransaction) -> list[str]:
        request = AddPartitionsToTxnRequest(transactions=list(entries))
        response = await wire.call("AddPartitionsToTxn", version, request)
        return [
            ErrorCode.of(result.topic_results[0].results_by_partition[0].partition_error_code).name
            for result in response.results_by_transaction
        ]

    both = entry(one, verify_only=False), entry(two, verify_only=True)
    assert await codes(*both) == ["NONE", "TRANSACTION_ABORTABLE"]
    assert await codes(entry(one, verify_only=True)) == ["NONE"]
    assert await codes(entry(one, verify_only=True, topic="none")) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_groups_offsets_join_a_transaction(wire: Any, producer_of: Any) -> None:
    producer = await producer_of(wire)
    request = AddOffsetsToTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="console-consumer-1",
    )
    for version in range(5):
        assert (await wire.call("AddOffsetsToTxn", version, request)).error_code == 0
    (topic,) = (await producer.state()).topics
    assert topic.topic == "__consumer_offsets"
    assert len(topic.partitions) == 1
    assert await producer.end() is ErrorCode.NONE
    assert await producer.settled() == "CompleteCommit"


async def test_markers_can_be_written_by_hand(wire: Any, make_fetch: Any, producer_of: Any) -> None:
    producer = await producer_of(wire)
    await producer.write(b"hanging")
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=1_000,
        topics=[
            WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9]),
            WritableTxnMarkerTopic(name="none", partition_indexes=[0]),
        ],
    )
    response = await wire.call("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[marker]))
    found = [
        [ErrorCode.of(one.error_code) for one in topic.partitions] for topic in response.markers[0].topics
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == [[ErrorCode.NONE, unknown], [unknown]]
    assert await stable(wire, make_fetch, "t", 0)
    assert not await stable(wire, make_fetch, "t", 1)


# -- looking


async def listed(wire: Any, version: int = 2, **filters: Any) -> Any:
    return await wire.call("ListTransactions", version, ListTransactionsRequest(**filters))


async def test_transactions_are_listed_as_they_are_filtered(wire: Any, producer_of: Any) -> None:
    busy, done = await producer_of(wire, name="app-1"), await producer_of(wire, name="app-2")
    await producer_of(wire, name="other")
    await busy.write(b"v")
    await done.write(b"v")
    await done.end()
    await done.settled()

    async def names(**filters: Any) -> list[str]:
        response = await listed(wire, **filters)
        assert response.error_code == 0
        return sorted(one.transactional_id for one in response.transaction_states)

    assert await names() == ["app-1", "app-2", "other"]
    assert await names(state_filters=["Ongoing"]) == ["app-1"]
    assert await names(state_filters=["Ongoing", "CompleteCommit"]) == ["app-1", "app-2"]
    assert await names(state_filters=["Nonsense"]) == []
    assert (await listed(wire, state_filters=["Nonsense"])).unknown_state_filters == ["Nonsense"]
    assert await names(producer_id_filters=[done.producer_id]) == ["app-2"]
    assert await names(duration_filter=3_600_000, state_filters=["Ongoing"]) == []
    assert await names(transactional_id_pattern="app-.*") == ["app-1", "app-2"]
    assert await names(transactional_id_pattern="app") == [], "the whole id must match"
    assert await names(transactional_id_pattern="(a|app)+-[0-9]") == ["app-1", "app-2"]
    assert await names(transactional_id_pattern="") == ["app-1", "app-2", "other"]
    await producer_of(wire, name="Größe/ 1:a")
    assert await names(transactional_id_pattern=r"Gr.+[/]\s\d:[^b]") == ["Größe/ 1:a"]
    assert await names(transactional_id_pattern=".*") == ["Größe/ 1:a", "app-1", "app-2", "other"]


async def test_patterns_that_explode_or_lie_do_no_harm(wire: Any, producer_of: Any) -> None:
    await producer_of(wire, name="a" * 64)
    assert (await listed(wire, transactional_id_pattern="(a+)+(a*)*(aa|a)*b")).transaction_states == []
    for wrong in ("(", "a{1000}{1000}{1000}", r"(a)\1", "(?=a)"):
        assert (await listed(wire, transactional_id_pattern=wrong)).error_code == 128


async def test_what_is_not_known_is_not_described(wire: Any) -> None:
    assert (await described(wire, "nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await described(wire, "")).error_code == ErrorCode.INVALID_REQUEST


async def test_clients_are_told_that_epochs_may_be_used(wire: Any) -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    for version, supported in ((3, []), (4, [("transaction.version", 0, 2)])):
        response = await wire.call("ApiVersions", version, request)
        finalized = {one.name: one.max_version_level for one in response.finalized_features}
        assert finalized["transaction.version"] == 2
        assert response.finalized_features_epoch >= 0
        found = [(one.name, one.min_version, one.max_version) for one in response.supported_features]
        assert [one for one in found if one[0] == "transaction.version"] == supported


async def test_two_phase_commit_where_it_is_allowed_never_times_out(scene: Any, make_batch: Any) -> None:
    await scene.start(
        **SMALL,
        transaction_two_phase_commit_enable="true",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="20",
    )
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    producer = Producer(wire, make_batch, "x", EPOCHS)
    assert await producer.init(version=6, enable_2pc=True, transaction_timeout_ms=1) is ErrorCode.NONE
    await producer.write(b"v")
    quick = Producer(wire, make_batch, "y", EPOCHS)
    assert await quick.init(transaction_timeout_ms=1) is ErrorCode.NONE
    await quick.send("t", b"w")
    async with asyncio.timeout(20):
        while (await quick.state()).transaction_state != "CompleteAbort":
            await asyncio.sleep(0.01)
    state = await producer.state()
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 2**31 - 1)
    assert await producer.end() is ErrorCode.NONE


async def test_a_transaction_is_ended_in_a_partition_whose_topic_is_just_being_made(
    scene: Any,
    wire: Any,
    producer_of: Any,
    make_fetch: Any,
    until: Any,
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
    await until(lambda: TopicPartition("made", 0) in scene.broker._replicas._partitions)
    await producer.write(b"one", (0,), "made")
    assert await producer.end() is ErrorCode.NONE
    assert await producer.settled() == "CompleteCommit"
    others_open.set()
    assert (await creating).error_code == 0
    assert await stable(wire, make_fetch, "made")
    assert await committed(wire, make_fetch, "made") == [b"one"]
