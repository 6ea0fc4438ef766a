"""What type checkers infer for programs that use the clients. `make check` runs mypy on it, which fails where a type differs.

Nothing here runs. A line with `type: ignore` must be an error: mypy reports an ignore that is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, assert_type

from odradek import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from odradek.client.admin.quorum import QuorumDescription, QuorumReplica
from odradek.retry import AsyncRetryConsumer, Output, RetryConsumer


class Order:
    """A user's class."""

    drink = "tea"


def read_order(value: bytes) -> Order:
    return Order()


def read_order_or_null(value: bytes | None) -> Order:
    return Order()


def write_order(order: Order) -> bytes:
    return order.drink.encode()


def without_deserializers() -> None:
    with Consumer("localhost:9092", group_id="board") as consumer:
        assert_type(consumer, Consumer[bytes, bytes])
        for record in consumer:
            assert_type(record.key, bytes | None)
            assert_type(record.value, bytes | None)
            assert_type(record.offset, int)
        assert_type(consumer.poll(), list[ConsumerRecord[bytes, bytes]])
    from_config = Consumer.from_config({"bootstrap.servers": "localhost:9092"}, group_id="board")
    assert_type(from_config.poll()[0].value, bytes | None)


def with_deserializers() -> None:
    with Consumer("localhost:9092", key_deserializer=bytes.decode, value_deserializer=read_order) as consumer:
        for record in consumer:
            assert_type(record.key, str | None)
            assert_type(record.value, Order | None)
            record.value.drink.upper()  # type: ignore[union-attr]
            topic, partition, *_ = record
            assert_type(topic, str)
            assert_type(partition, int)
    assert_type(Consumer("localhost:9092", value_deserializer=read_order), Consumer[bytes, Order])
    assert_type(Consumer("localhost:9092", value_deserializer=read_order_or_null), Consumer[bytes, Order])
    assert_type(
        Consumer("localhost:9092", value_deserializer=lambda value: value.decode()), Consumer[bytes, str]
    )
    assert_type(Consumer("localhost:9092", value_deserializer=json.loads).poll()[0].value, Any | None)
    from_config = Consumer.from_config({}, value_deserializer=read_order)
    assert_type(from_config.poll()[0].value, Order | None)
    wrong: Consumer[bytes, int] = Consumer("localhost:9092", value_deserializer=read_order)  # type: ignore[arg-type]
    Consumer("localhost:9092", value_deserializer=write_order)  # type: ignore[arg-type]
    del wrong


class OrderConsumer(Consumer[str, Order]):
    """A user's subclass keeps its types."""


def with_a_subclass() -> None:
    assert_type(OrderConsumer.from_config({}), OrderConsumer)
    with OrderConsumer("localhost:9092") as consumer:
        assert_type(consumer.poll()[0].value, Order | None)


async def asynchronous() -> None:
    async with AsyncConsumer("localhost:9092", value_deserializer=read_order) as consumer:
        assert_type(consumer, AsyncConsumer[bytes, Order])
        assert_type(await consumer.poll(), list[ConsumerRecord[bytes, Order]])
        async for record in consumer:
            assert_type(record.value, Order | None)
    plain = AsyncConsumer("localhost:9092")
    assert_type((await plain.poll())[0].value, bytes | None)
    from_config = AsyncConsumer.from_config({}, key_deserializer=bytes.decode)
    assert_type((await from_config.poll())[0].key, str | None)


def handle(record: ConsumerRecord[bytes, Order]) -> list[Output]:
    assert_type(record.value, Order | None)
    return []


def handle_text(record: ConsumerRecord[bytes, str]) -> None:
    """Takes records of another type."""


async def handle_later(record: ConsumerRecord[bytes, Order]) -> Iterable[Output] | None:
    return None


def trying_again() -> None:
    consumer = RetryConsumer("localhost:9092", ["orders"], value_deserializer=read_order)
    assert_type(consumer, RetryConsumer[bytes, Order])
    consumer.run(handle)
    consumer.run(handle_text)  # type: ignore[arg-type]
    assert_type(RetryConsumer("localhost:9092", ["orders"]), RetryConsumer[bytes, bytes])


async def trying_again_later() -> None:
    consumer = AsyncRetryConsumer("localhost:9092", ["orders"], value_deserializer=read_order)
    assert_type(consumer, AsyncRetryConsumer[bytes, Order])
    await consumer.run(handle_later)


def with_serializers() -> None:
    with Producer("localhost:9092", key_serializer=str.encode, value_serializer=write_order) as producer:
        assert_type(producer, Producer[str, Order])
        producer.send("orders", Order(), key="tea")
        producer.send("orders", None, key="tea")
        producer.send("orders", "tea", key="tea")  # type: ignore[arg-type]
        producer.send("orders", Order(), key=1)  # type: ignore[arg-type]
    Producer("localhost:9092", value_serializer=json.dumps).send("orders", {"item": "tea"})
    Producer("localhost:9092", value_serializer=lambda value: json.dumps(value)).send(
        "orders", {"item": "tea"}
    )
    Producer("localhost:9092", value_serializer=read_order)  # type: ignore[arg-type]
    Producer.from_config({}, value_serializer=write_order).send("orders", "tea")  # type: ignore[arg-type]


def without_serializers() -> None:
    producer = Producer("localhost:9092")
    producer.send("orders", b"tea", key="1")
    producer.send("orders", memoryview(b"tea"))


async def asynchronous_producer() -> None:
    async with AsyncProducer("localhost:9092", value_serializer=write_order) as producer:
        assert_type(producer, AsyncProducer[Any, Order])
        await producer.send("orders", Order())
        await producer.send_and_wait("orders", b"tea")  # type: ignore[arg-type]


def administration(admin: Admin) -> None:
    assert_type(admin.describe_quorum(), QuorumDescription)
    assert_type(admin.describe_quorum().voters, tuple[QuorumReplica, ...])
    admin.remove_group_members("board", ["till-1"], reason="closed")
    admin.remove_group_members("board")
    admin.alter_share_group_offsets("queue", {TopicPartition("flights", 0): 3})
    admin.alter_share_group_offsets("queue", {"flights": 3})  # type: ignore[dict-item]
    admin.delete_share_group_offsets("queue", ["flights"])
    admin.unregister_broker(3)
    admin.unregister_broker("3")  # type: ignore[arg-type]


async def asynchronous_administration(admin: AsyncAdmin) -> None:
    assert_type(await admin.describe_quorum(), QuorumDescription)
    await admin.remove_group_members("board")
