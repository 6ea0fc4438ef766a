"""A program that uses every public method and attribute of the classes in `odradek.__all__`, with the type of each result.

Nothing here runs. mypy and pyright read it (`make check`), and a test fails if a method is missing
(`tests/unit/client/test_typing_programs.py`). `every_admin_method.py` has the admin clients.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyarrow has no types: the results of `poll_arrow` are Any.

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, assert_type
from uuid import UUID

import odradek
from odradek import (
    AcknowledgeType,
    AsyncConsumer,
    AsyncProducer,
    AsyncShareConsumer,
    CommitFailedError,
    ConfigError,
    ConfigResource,
    Consumer,
    ConsumerRecord,
    Delivery,
    ErrorCode,
    KafkaError,
    NewTopic,
    OdradekError,
    OffsetAndMetadata,
    PartialFailureError,
    Producer,
    ProducerFencedError,
    RebalanceListener,
    RecordMetadata,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from odradek.client import (
    AcknowledgedOffsets,
    CommittedOffsets,
    GroupMetadata,
    MetricName,
    OffsetAndTimestamp,
    OffsetsToCommit,
    ResourceType,
    TimestampType,
    TransactionIdentity,
)

SERVERS = "127.0.0.1:9092"
PARTITION = TopicPartition("flights", 0)
IDENTITY = TransactionIdentity(transactional_id="tickets", producer_id=1, producer_epoch=0)


class Listener(RebalanceListener):
    """A user's listener: methods may be plain functions or coroutines."""

    def partitions_revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
        assert_type(partitions, tuple[TopicPartition, ...])

    async def partitions_assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        assert_type(partitions, tuple[TopicPartition, ...])

    def partitions_lost(self, partitions: tuple[TopicPartition, ...]) -> Awaitable[None] | None:
        return super().partitions_lost(partitions)


def rebalances(listener: RebalanceListener) -> None:
    assert_type(listener.partitions_assigned((PARTITION,)), Awaitable[None] | None)
    assert_type(listener.partitions_revoked((PARTITION,)), Awaitable[None] | None)
    assert_type(listener.partitions_lost((PARTITION,)), Awaitable[None] | None)


def committed(offsets: OffsetsToCommit, error: Exception | None) -> None:
    """Gets the outcome of a commit."""


def acknowledged(offsets: AcknowledgedOffsets) -> None:
    """Gets the outcome of acknowledgements."""


def consuming(consumer: Consumer[str, float]) -> None:
    assert_type(
        Consumer.from_config({"bootstrap.servers": SERVERS}, group_id="board"), Consumer[bytes, bytes]
    )
    consumer.subscribe(["flights"], listener=Listener())
    consumer.subscribe(pattern="flights.*")
    assert_type(consumer.subscription(), frozenset[str])
    consumer.unsubscribe()
    consumer.assign([PARTITION])
    assert_type(consumer.assignment(), tuple[TopicPartition, ...])
    assert_type(consumer.poll(timeout_s=0.5, max_records=10), list[ConsumerRecord[str, float]])
    rows: object = consumer.poll_arrow(timeout_s=0.5, max_records=10)
    del rows
    assert_type(consumer.position(PARTITION), int)
    assert_type(consumer.positions(), dict[TopicPartition, int])
    consumer.seek(PARTITION, 3, topic_id=UUID(int=1))
    consumer.seek_to_beginning()
    consumer.seek_to_end([PARTITION])
    consumer.seek_to_committed([PARTITION])
    consumer.seek_to_timestamp({PARTITION: 1_700_000_000_000})
    consumer.stop_at(PARTITION, 100)
    consumer.stop_at(PARTITION, None)
    consumer.pause([PARTITION])
    assert_type(consumer.paused(), tuple[TopicPartition, ...])
    consumer.resume([PARTITION])
    consumer.commit()
    consumer.commit({PARTITION: OffsetAndMetadata(4, "noon")}, timeout_s=5.0)
    consumer.commit_async({PARTITION: 4}, committed)
    assert_type(consumer.committed([PARTITION]), CommittedOffsets)
    assert_type(consumer.beginning_offsets([PARTITION]), dict[TopicPartition, int])
    assert_type(consumer.end_offsets([PARTITION]), dict[TopicPartition, int])
    assert_type(
        consumer.offsets_for_times({PARTITION: 1_700_000_000_000}),
        dict[TopicPartition, OffsetAndTimestamp | None],
    )
    assert_type(consumer.partitions_for("flights"), tuple[int, ...])
    assert_type(consumer.topic_id("flights"), UUID | None)
    assert_type(consumer.group_metadata(), GroupMetadata)
    assert_type(consumer.client_instance_id(timeout_s=1.0), str)
    assert_type(consumer.metrics(), dict[MetricName, float])
    consumer.close(commit=False)


async def consuming_later(consumer: AsyncConsumer[str, float]) -> None:
    assert_type(
        AsyncConsumer.from_config({"bootstrap.servers": SERVERS}, group_id="board"),
        AsyncConsumer[bytes, bytes],
    )
    await consumer.start()
    await consumer.subscribe(["flights"], listener=Listener())
    await consumer.subscribe(pattern="flights.*")
    assert_type(consumer.subscription(), frozenset[str])
    await consumer.unsubscribe()
    await consumer.assign([PARTITION])
    assert_type(consumer.assignment(), tuple[TopicPartition, ...])
    assert_type(await consumer.poll(timeout_s=0.5, max_records=10), list[ConsumerRecord[str, float]])
    rows: object = await consumer.poll_arrow(timeout_s=0.5, max_records=10)
    del rows
    assert_type(await consumer.position(PARTITION), int)
    assert_type(consumer.positions(), dict[TopicPartition, int])
    consumer.seek(PARTITION, 3, topic_id=UUID(int=1))
    consumer.seek_to_beginning()
    consumer.seek_to_end([PARTITION])
    consumer.seek_to_committed([PARTITION])
    await consumer.seek_to_timestamp({PARTITION: 1_700_000_000_000})
    consumer.stop_at(PARTITION, 100)
    consumer.pause([PARTITION])
    assert_type(consumer.paused(), tuple[TopicPartition, ...])
    consumer.resume([PARTITION])
    await consumer.commit({PARTITION: OffsetAndMetadata(4, "noon")}, timeout_s=5.0)
    consumer.commit_async({PARTITION: 4}, committed)
    assert_type(await consumer.committed([PARTITION]), CommittedOffsets)
    assert_type(await consumer.beginning_offsets([PARTITION]), dict[TopicPartition, int])
    assert_type(await consumer.end_offsets([PARTITION]), dict[TopicPartition, int])
    assert_type(
        await consumer.offsets_for_times({PARTITION: 1_700_000_000_000}),
        dict[TopicPartition, OffsetAndTimestamp | None],
    )
    assert_type(await consumer.partitions_for("flights"), tuple[int, ...])
    assert_type(consumer.topic_id("flights"), UUID | None)
    assert_type(consumer.group_metadata(), GroupMetadata)
    assert_type(await consumer.client_instance_id(timeout_s=1.0), str)
    assert_type(consumer.metrics(), dict[MetricName, float])
    await consumer.close(commit=False)


def producing(producer: Producer[str, float]) -> None:
    assert_type(Producer.from_config({"bootstrap.servers": SERVERS}, acks="all"), Producer[Any, Any])
    assert_type(producer.partitions_for("flights"), tuple[int, ...])
    assert_type(
        producer.send("flights", 1.5, key="JFK", headers={"day": "1"}, partition=0, timestamp_ms=1), Delivery
    )
    assert_type(producer.send_and_wait("flights", 1.5, headers=[("day", b"1")]), RecordMetadata)
    producer.send_arrow("flights", object())
    producer.init_transactions()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({PARTITION: 4}, GroupMetadata(group_id="board"))
    assert_type(producer.prepare_transaction(), TransactionIdentity)
    producer.change_transactional_id("flights-2")
    assert_type(producer.resume_transactions(IDENTITY), bool)
    producer.commit_transaction(timeout_s=5.0)
    producer.abort_transaction()
    with producer.transaction() as same:
        assert_type(same, Producer[str, float])
    assert_type(producer.client_instance_id(), str)
    assert_type(producer.metrics(), dict[MetricName, float])
    producer.flush(timeout_s=5.0)
    producer.close()


async def producing_later(producer: AsyncProducer[str, float]) -> None:
    assert_type(
        AsyncProducer.from_config({"bootstrap.servers": SERVERS}, acks="all"), AsyncProducer[Any, Any]
    )
    await producer.start()
    assert_type(await producer.partitions_for("flights"), tuple[int, ...])
    assert_type(await producer.send("flights", 1.5, key="JFK", headers={"day": "1"}), Delivery)
    assert_type(await producer.send_and_wait("flights", 1.5), RecordMetadata)
    await producer.send_arrow("flights", object())
    await producer.init_transactions()
    producer.begin_transaction()
    await producer.send_offsets_to_transaction({PARTITION: 4}, GroupMetadata(group_id="board"))
    assert_type(await producer.prepare_transaction(), TransactionIdentity)
    producer.change_transactional_id("flights-2")
    assert_type(await producer.resume_transactions(IDENTITY), bool)
    await producer.commit_transaction(timeout_s=5.0)
    await producer.abort_transaction()
    async with producer.transaction() as same:
        assert_type(same, AsyncProducer[str, float])
    assert_type(await producer.client_instance_id(), str)
    assert_type(producer.metrics(), dict[MetricName, float])
    await producer.flush(timeout_s=5.0)
    await producer.close()


def working(consumer: ShareConsumer[str, float]) -> None:
    assert_type(
        ShareConsumer.from_config({"bootstrap.servers": SERVERS}, group_id="mail"),
        ShareConsumer[bytes, bytes],
    )
    consumer.subscribe("mails")
    assert_type(consumer.subscription(), frozenset[str])
    assert_type(consumer.assignment(), tuple[TopicPartition, ...])
    for record in consumer.poll(timeout_s=0.5, max_records=10):
        assert_type(record, ShareRecord[str, float])
        consumer.acknowledge(record)
        consumer.acknowledge((PARTITION, record.offset), AcknowledgeType.RENEW)
    assert_type(consumer.acquisition_lock_timeout_ms, int | None)
    consumer.on_acknowledged(acknowledged)
    consumer.on_acknowledged(None)
    consumer.commit(timeout_s=5.0)
    consumer.commit_async()
    consumer.wakeup()
    assert_type(consumer.client_instance_id(), str)
    assert_type(consumer.metrics(), dict[MetricName, float])
    consumer.unsubscribe()
    consumer.close()


async def working_later(consumer: AsyncShareConsumer[str, float]) -> None:
    assert_type(
        AsyncShareConsumer.from_config({"bootstrap.servers": SERVERS}, group_id="mail"),
        AsyncShareConsumer[bytes, bytes],
    )
    await consumer.start()
    await consumer.subscribe("mails")
    assert_type(consumer.subscription(), frozenset[str])
    assert_type(consumer.assignment(), tuple[TopicPartition, ...])
    for record in await consumer.poll(timeout_s=0.5, max_records=10):
        assert_type(record, ShareRecord[str, float])
        consumer.acknowledge(record, AcknowledgeType.RELEASE)
    assert_type(consumer.acquisition_lock_timeout_ms, int | None)
    consumer.on_acknowledged(acknowledged)
    await consumer.commit(timeout_s=5.0)
    consumer.commit_async()
    consumer.wakeup()
    assert_type(await consumer.client_instance_id(), str)
    assert_type(consumer.metrics(), dict[MetricName, float])
    await consumer.unsubscribe()
    await consumer.close()


def values(record: ConsumerRecord[str, float], mail: ShareRecord[str, float], sent: RecordMetadata) -> None:
    assert_type(record.topic, str)
    assert_type(record.partition, int)
    assert_type(record.offset, int)
    assert_type(record.timestamp_ms, int)
    assert_type(record.timestamp_type, TimestampType)
    assert_type(record.key, str | None)
    assert_type(record.value, float | None)
    assert_type(record.headers, tuple[tuple[str, bytes | None], ...])
    assert_type(record.leader_epoch, int)
    assert_type(mail.topic, str)
    assert_type(mail.partition, int)
    assert_type(mail.offset, int)
    assert_type(mail.timestamp_ms, int)
    assert_type(mail.timestamp_type, TimestampType)
    assert_type(mail.key, str | None)
    assert_type(mail.value, float | None)
    assert_type(mail.headers, tuple[tuple[str, bytes | None], ...])
    assert_type(mail.leader_epoch, int)
    assert_type(mail.delivery_count, int)
    assert_type(sent.topic, str)
    assert_type(sent.partition, int)
    assert_type(sent.offset, int)
    assert_type(sent.timestamp_ms, int)


def settled(delivery: Delivery) -> None:
    """Gets the fate of a record."""


async def deliveries(delivery: Delivery) -> None:
    assert_type(delivery.done(), bool)
    assert_type(delivery.result(timeout_s=1.0), RecordMetadata)
    assert_type(delivery.exception(), Exception | None)
    assert_type(await delivery, RecordMetadata)
    delivery.add_done_callback(settled)
    delivery.when_settled(lambda partition, offset, error: None)


def names(
    partition: TopicPartition, topic: NewTopic, offset: OffsetAndMetadata, owner: ConfigResource
) -> None:
    assert_type(partition.topic, str)
    assert_type(partition.partition, int)
    assert_type(topic.name, str)
    assert_type(topic.partitions, int)
    assert_type(topic.replication_factor, int)
    assert_type(topic.configs, Mapping[str, str])
    for brokers in topic.assignments or ():
        assert_type(list(brokers), list[int])
    assert_type(offset.offset, int)
    assert_type(offset.metadata, str)
    assert_type(offset.leader_epoch, int)
    assert_type(offset.topic_id, UUID)
    assert_type(owner.type, ResourceType)
    assert_type(owner.name, str)
    assert_type(ConfigResource.topic("flights"), ConfigResource)
    assert_type(ConfigResource.broker(), ConfigResource)
    assert_type(ConfigResource.broker(1), ConfigResource)
    assert_type(ConfigResource.group("board"), ConfigResource)
    assert_type(ConfigResource.loggers(1), ConfigResource)
    assert_type(ConfigResource.client_metrics("all"), ConfigResource)


def errors(kafka: KafkaError, several: PartialFailureError, lost: CommitFailedError) -> None:
    assert_type(kafka.code, ErrorCode)
    assert_type(kafka.retriable, bool)
    assert_type(kafka.as_outcome(), KafkaError)
    assert_type(kafka.code.retriable, bool)
    code = ErrorCode.of(3)
    assert_type(code, ErrorCode)
    assert_type(code.meaning, str)
    assert_type(code.retriable, bool)
    assert_type(several.retriable, bool)
    for error in several.errors.values():
        assert_type(error, KafkaError)
    assert_type(lost.retriable, bool)


def shown() -> None:
    picture: object = odradek.show(SERVERS, topic="flights")
    version: str = odradek.__version__
    del picture, version


def raised(fenced: ProducerFencedError, wrong: ConfigError, anything: OdradekError) -> None:
    for error in (fenced, wrong, anything):
        raise error.as_outcome()
