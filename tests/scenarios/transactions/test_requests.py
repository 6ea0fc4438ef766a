"""Requests of transactions that are bad, rare or only ask: what the transaction coordinator answers to each."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kit.waiting import until
from tests.scenarios.transactions.transactional_producer import (
    CLASSIC,
    EPOCHS,
    SMALL,
    TransactionalProducer,
    coordinated,
    described,
    opened,
    stable,
)

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.transactions.list_transactions import ListTransactionsRequest
from odradek.protocol.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


@pytest.fixture
async def wire(scene: Any) -> Any:
    return await opened(scene)


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
    producer = TransactionalProducer(wire, make_batch, "x", CLASSIC)
    if len(changes.get("transactional_id", "")) > 32_767:
        request = InitProducerIdRequest(transaction_timeout_ms=1000, **changes)
        try:
            response = await wire.ask(request, version)
        except (ConnectionError, EOFError, asyncio.IncompleteReadError):
            return  # the wire has no longer strings
        assert response.error_code == code
        return
    assert await producer.init(version=version, **changes) is code


async def test_an_id_without_a_coordinator_must_look_for_one(scene: Any) -> None:
    await scene.start(**SMALL)
    wire = await scene.connect()
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
    assert (await wire.ask(request, 4)).error_code == ErrorCode.NOT_COORDINATOR


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
    first, two = await producer_of(wire, name="one"), await producer_of(wire, name="two")

    def entry(
        producer: TransactionalProducer, *, verify_only: bool, topic: str = "t"
    ) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=producer.name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )

    async def codes(*entries: AddPartitionsToTxnTransaction) -> list[str]:
        request = AddPartitionsToTxnRequest(transactions=list(entries))
        response = await wire.ask(request, version)
        return [
            ErrorCode.of(entry.topic_results[0].results_by_partition[0].partition_error_code).name
            for entry in response.results_by_transaction
        ]

    both = entry(first, verify_only=False), entry(two, verify_only=True)
    assert await codes(*both) == ["NONE", "TRANSACTION_ABORTABLE"]
    assert await codes(entry(first, verify_only=True)) == ["NONE"]
    assert await codes(entry(first, verify_only=True, topic="none")) == ["UNKNOWN_TOPIC_OR_PARTITION"]


async def test_a_groups_offsets_join_a_transaction(wire: Any, producer_of: Any) -> None:
    producer = await producer_of(wire)
    request = AddOffsetsToTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="console-consumer-1",
    )
    for version in range(5):
        assert (await wire.ask(request, version)).error_code == 0
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
    response = await wire.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    codes = [
        [ErrorCode.of(partition.error_code) for partition in topic.partitions]
        for topic in response.markers[0].topics
    ]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, unknown], [unknown]]
    assert await stable(wire, make_fetch, "t", 0)
    assert not await stable(wire, make_fetch, "t", 1)


async def test_a_marker_that_is_named_thousands_of_times_is_written_once(
    scene: Any, wire: Any, producer_of: Any
) -> None:
    """Each wait for the disk is short, and 3,000 of them are not: the request would outlast its client's patience."""
    producer = await producer_of(wire)
    await producer.write(b"hanging")
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        coordinator_epoch=1_000,
        topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
    )
    log = scene.broker.context.replicas.replica("t", 0).log
    before = log.end_offset
    request = WriteTxnMarkersRequest(markers=[marker] * 3_000)
    response = await wire.ask(request, 1)
    codes = {marked.topics[0].partitions[0].error_code for marked in response.markers}
    assert (len(response.markers), codes) == (3_000, {ErrorCode.NONE})
    assert log.end_offset == before + 1


# -- looking


async def listed(wire: Any, version: int = 2, **filters: Any) -> Any:
    return await wire.ask(ListTransactionsRequest(**filters), version)


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
        return sorted(state.transactional_id for state in response.transaction_states)

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
    assert (await described(wire, "unknown")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await described(wire, "")).error_code == ErrorCode.INVALID_REQUEST


async def test_clients_hear_that_epochs_may_be_used(wire: Any) -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    for version, supported in ((3, []), (4, [("transaction.version", 0, 2)])):
        response = await wire.ask(request, version)
        finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
        assert finalized["transaction.version"] == 2
        assert response.finalized_features_epoch >= 0
        results = [
            (feature.name, feature.min_version, feature.max_version)
            for feature in response.supported_features
        ]
        assert [entry for entry in results if entry[0] == "transaction.version"] == supported


async def test_two_phase_commit_where_it_is_allowed_never_times_out(scene: Any, make_batch: Any) -> None:
    await scene.start(
        **SMALL,
        transaction_two_phase_commit_enable="true",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="20",
    )
    wire = await scene.connect()
    await coordinated(wire)
    await wire.create("t", partitions=2)
    producer = TransactionalProducer(wire, make_batch, "x", EPOCHS)
    assert await producer.init(version=6, enable_2pc=True, transaction_timeout_ms=1) is ErrorCode.NONE
    await producer.write(b"v")
    quick = TransactionalProducer(wire, make_batch, "y", EPOCHS)
    assert await quick.init(transaction_timeout_ms=1) is ErrorCode.NONE
    await quick.send("t", b"w")
    await until(quick.state, holds=lambda state: state.transaction_state == "CompleteAbort")
    state = await producer.state()
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Ongoing", 2**31 - 1)
    assert await producer.end() is ErrorCode.NONE
