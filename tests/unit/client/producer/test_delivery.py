"""The fate of a record: reported once, to every thread that asks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.client.network.errors import TimedOutError
from odradek.client.producer.delivery import BatchIdentity, Delivery, ProducerBatch, RecordMetadata
from odradek.client.producer.failure_log import FailureLog
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.records import BatchBuilder, check_crc, read_header


@pytest.fixture
def batch() -> ProducerBatch:
    made = ProducerBatch(
        TopicPartition("t", 2), BatchBuilder(), order=(0, 0), created_at=0.0, deadline=1.0, reserved_bytes=0
    )
    for number in range(3):
        made.append(100 + number, None, b"v")
    made.record_count = 3
    return made


def test_a_record_is_where_its_batch_is_plus_its_place_in_it(batch: ProducerBatch) -> None:
    delivery = Delivery(batch, 2, 102)
    batch.settle(base_offset=40)
    assert delivery.done()
    assert delivery.result() == RecordMetadata("t", 2, 42, 102)


def test_the_brokers_time_wins_when_it_sets_one(batch: ProducerBatch) -> None:
    batch.settle(base_offset=0, log_append_time_ms=999)
    assert Delivery(batch, 0, 100).result().timestamp_ms == 999


def test_an_offset_no_one_knows_is_minus_one(batch: ProducerBatch) -> None:
    batch.settle()
    assert Delivery(batch, 1, 100).result().offset == -1


def test_a_failure_is_raised_and_also_returned(batch: ProducerBatch) -> None:
    error = KafkaError(ErrorCode.INVALID_RECORD)
    batch.settle(error=error)
    batch.settle(base_offset=1)
    delivery = Delivery(batch, 0, 100)
    assert repr(delivery.exception()) == repr(error)
    with pytest.raises(KafkaError):
        delivery.result()


def test_waiting_has_a_limit(batch: ProducerBatch) -> None:
    with pytest.raises(TimedOutError, match="not acknowledged within 0 s"):
        Delivery(batch, 0, 100).result(0)


def test_another_thread_may_wait(batch: ProducerBatch) -> None:
    results: list[int] = []
    waiter = threading.Thread(target=lambda: results.append(Delivery(batch, 1, 100).result(10).offset))
    waiter.start()
    batch.settle(base_offset=7)
    waiter.join(PATIENCE_S)
    assert results == [8]


async def test_a_delivery_can_be_awaited_while_another_thread_settles_it(
    batch: ProducerBatch, within: Callable[[Awaitable[Any]], Awaitable[Any]]
) -> None:
    settling = threading.Thread(target=lambda: batch.settle(base_offset=7))

    async def wait() -> RecordMetadata:
        return await Delivery(batch, 0, 100)

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    settling.start()
    assert (await within(waiting)).offset == 7
    settling.join(PATIENCE_S)
    assert (await within(wait())).offset == 7


def test_callbacks_are_called_once_before_or_after_and_their_errors_stop_no_one(
    batch: ProducerBatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[str] = []

    def broken(_: Delivery) -> None:
        raise RuntimeError("mine")

    delivery = Delivery(batch, 0, 100)
    delivery.add_done_callback(broken)
    delivery.add_done_callback(lambda metadata: answers.append("early"))
    batch.settle(base_offset=0)
    delivery.add_done_callback(lambda second_metadata: answers.append("late"))
    assert answers == ["early", "late"]
    assert "delivery_callback_failed" in caplog.text


def test_a_batch_keeps_its_bytes_and_changes_its_identity(batch: ProducerBatch) -> None:
    batch.identity = BatchIdentity(7, 1, 10)
    first = batch.encode()
    assert batch.encode() is first
    batch.identity = BatchIdentity(8, 2, 0)
    again = batch.encode()
    header = read_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, 0)
    check_crc(again)


def test_failures_that_no_one_looked_at_are_reported_once(batch: ProducerBatch) -> None:
    log = FailureLog()
    error = KafkaError(ErrorCode.INVALID_RECORD, "bad")
    batch.settle(error=error)
    log.note(batch, error)
    delivery_error = log.pop()
    assert delivery_error is not None
    assert (delivery_error.record_count, repr(delivery_error.first), delivery_error.code) == (
        3,
        repr(error),
        ErrorCode.INVALID_RECORD,
    )
    assert "3 records were not delivered; the first: bad" in str(delivery_error)
    assert log.pop() is None


def test_failures_that_someone_looked_at_are_not_reported_again(batch: ProducerBatch) -> None:
    log = FailureLog()
    error = KafkaError(ErrorCode.INVALID_RECORD)
    batch.settle(error=error)
    log.note(batch, error)
    Delivery(batch, 0, 100).exception()
    assert log.pop() is None
