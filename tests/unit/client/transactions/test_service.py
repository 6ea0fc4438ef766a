"""A transactional producer against a coordinator that misbehaves on command, in the classic flow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client.network.errors import TimedOutError
from odradek.client.producer.aio import AsyncProducer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.metadata.find_coordinator import (
    Coordinator,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.transactions.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.protocol.messages.transactions.end_txn import EndTxnResponse

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
QUICK = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1}


def added(asked: Any, code: ErrorCode = ErrorCode.NONE) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
                    for number in topic.partitions
                ],
            )
            for topic in asked.message.v3_and_below_topics
        ]
    )


@pytest.fixture
async def producer(broker: Any) -> Any:
    broker.on["FindCoordinator"] = lambda asked: FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=1, host="127.0.0.1", port=broker.port)
            for key in asked.message.coordinator_keys
        ]
    )
    broker.on["AddPartitionsToTxn"] = added
    broker.on["EndTxn"] = lambda asked: EndTxnResponse()
    async with AsyncProducer(broker.bootstrap, transactional_id="name", **QUICK) as made:
        await made.init_transactions()
        yield made


async def test_an_abort_waits_no_longer_than_it_may_for_partitions_that_are_being_added(
    broker: Any, producer: AsyncProducer, within: Within
) -> None:
    asked_again = asyncio.Event()

    def refuse(asked: Any) -> AddPartitionsToTxnResponse:
        asked_again.set()
        return added(asked, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    broker.on["AddPartitionsToTxn"] = refuse
    producer.begin_transaction()
    await producer.send("t", b"never sent")
    await within(asked_again.wait())
    with pytest.raises(TimedOutError, match="abort_transaction did not succeed"):
        await within(producer.abort_transaction(0.05))
    assert broker.requests("EndTxn") == []  # it would be undone by the partitions that are added behind it
    broker.on["AddPartitionsToTxn"] = added
    await within(producer.abort_transaction())
    assert [request.committed for request in broker.requests("EndTxn")] == [False]
    assert broker.requests("Produce") == []


async def test_a_batch_that_comes_back_too_large_during_an_abort_is_not_sent_in_halves(
    broker: Any, producer: AsyncProducer, within: Within
) -> None:
    arrived, aborting = asyncio.Event(), asyncio.Event()

    async def answer(asked: Any) -> Any:
        arrived.set()
        await aborting.wait()
        return broker.produced(asked, ErrorCode.MESSAGE_TOO_LARGE)

    broker.once["Produce"] = [answer]
    producer.begin_transaction()
    deliveries = [await producer.send("t", b"%d" % number) for number in range(4)]
    await within(arrived.wait())
    abort = asyncio.create_task(producer.abort_transaction())
    await asyncio.sleep(0)
    aborting.set()
    await within(abort)
    for delivery in deliveries:
        with pytest.raises(KafkaError) as refusal:
            delivery.result(0)
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(broker.requests("Produce")) == 1
    assert [request.committed for request in broker.requests("EndTxn")] == [False]
