"""Our own client, end to end: every codec and acks, odd records, offsets by time, Arrow, both faces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop import logins

from odradek import AsyncConsumer, AsyncProducer, Consumer, ErrorCode, KafkaError, Producer, TopicPartition

SECONDS = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

MakeTopic = Callable[..., str]


def read(bootstrap: str, topic: str, count: int, **more: Any) -> list[Any]:
    """The first `count` records of partition 0."""
    records: list[Any] = []
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="earliest", **more) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(records) < count:
            came = consumer.poll(SECONDS)
            assert came, f"{len(records)} of {count} records came"
            records += came
    return records


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_is_sent_is_read(bootstrap: str, topic: MakeTopic, codec: str, acks: int | str) -> None:
    name = topic()
    with Producer(**logins.ours(bootstrap), compression_type=codec, acks=acks) as producer:
        deliveries = [producer.send(name, b"value %d" % n * 20, key=b"%d" % n) for n in range(300)]
        producer.flush(SECONDS)
    offsets = [delivery.result(SECONDS).offset for delivery in deliveries]
    assert offsets == ([-1] * 300 if acks == 0 else list(range(300)))
    records = read(bootstrap, name, 300)
    assert [(record.offset, record.key, record.value) for record in records] == [
        (n, b"%d" % n, b"value %d" % n * 20) for n in range(300)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_odd_records_come_back_as_they_went(bootstrap: str, topic: MakeTopic, codec: str) -> None:
    name = topic()
    sent: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]] = [
        (None, None, ()),
        (b"", b"", (("", b""),)),
        (b"k", None, (("same", b"1"), ("same", None), ("Grüße", b"\xff\x00"))),
        (b"\x00" * 300, b"x" * 900_000, ()),
    ]
    with Producer(**logins.ours(bootstrap), compression_type=codec) as producer:
        for number, (key, value, headers) in enumerate(sent):
            producer.send(name, value, key=key, headers=headers, timestamp_ms=1_000 + number, partition=0)
    records = read(bootstrap, name, len(sent))
    assert [(record.key, record.value, record.headers) for record in records] == sent
    assert [record.timestamp_ms for record in records] == [1_000, 1_001, 1_002, 1_003]


def test_text_and_serializers_make_bytes(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    with Producer(**logins.ours(bootstrap), value_serializer=lambda number: b"%d" % number) as producer:
        producer.send(name, 5, key="Grüße")
    (record,) = read(
        bootstrap, name, 1, value_deserializer=lambda value: int(value), key_deserializer=bytes.decode
    )
    assert (record.key, record.value) == ("Grüße", 5)


def test_keys_go_where_java_would_send_them(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(partitions=7)
    with Producer(**logins.ours(bootstrap)) as producer:
        places = {key: producer.send(name, b"", key=key) for key in (b"21", b"foobar", b"abc")}
        hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
        for key, delivery in places.items():
            assert delivery.result(SECONDS).partition == (hashes[key] & 0x7FFFFFFF) % 7


def test_records_without_key_reach_every_partition(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(partitions=3)
    with Producer(**logins.ours(bootstrap), batch_size=1_000) as producer:
        deliveries = [producer.send(name, b"x" * 100) for _ in range(1_000)]
    assert {delivery.result(SECONDS).partition for delivery in deliveries} == {0, 1, 2}


def test_a_topic_with_log_append_time_tells_the_brokers_time(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(**{"message.timestamp.type": "LogAppendTime"})
    with Producer(**logins.ours(bootstrap)) as producer:
        metadata = producer.send(name, b"v", timestamp_ms=1_000).result(SECONDS)
    (record,) = read(bootstrap, name, 1)
    assert metadata.timestamp_ms == record.timestamp_ms > 1_600_000_000_000
    assert record.timestamp_type.name == "LOG_APPEND_TIME"


def test_a_batch_too_large_for_the_topic_is_split_and_a_record_too_large_refused(
    bootstrap: str, topic: MakeTopic
) -> None:
    name = topic(**{"max.message.bytes": "2000"})
    with Producer(**logins.ours(bootstrap), linger_ms=50, batch_size=60_000) as producer:
        kept = [producer.send(name, b"%02d" % n * 250) for n in range(30)]
        refused = producer.send(name, b"x" * 5_000)
        error = refused.exception(SECONDS)
        assert isinstance(error, KafkaError)
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert [delivery.result(SECONDS).offset for delivery in kept] == list(range(30))
    assert [record.value[:2] for record in read(bootstrap, name, 30)] == [b"%02d" % n for n in range(30)]


def test_times_lead_to_offsets(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    with Producer(**logins.ours(bootstrap)) as producer:
        for n in range(10):
            producer.send(name, b"%d" % n, timestamp_ms=1_000 * n)
    with Consumer(**logins.ours(bootstrap)) as consumer:
        assert consumer.beginning_offsets([tp]) == {tp: 0}
        assert consumer.end_offsets([tp]) == {tp: 10}
        timestamp = consumer.offsets_for_times({tp: 3_500})[tp]
        assert timestamp is not None
        assert (timestamp.offset, timestamp.timestamp_ms) == (4, 4_000)
        assert consumer.offsets_for_times({tp: 99_000}) == {tp: None}
        consumer.assign([tp])
        consumer.seek_to_timestamp({tp: 7_001})
        assert [record.offset for record in consumer.poll(SECONDS)] == [8, 9]


def test_arrow_holds_what_records_hold(bootstrap: str, topic: MakeTopic) -> None:
    name = topic(partitions=2)
    with Producer(**logins.ours(bootstrap), compression_type="lz4") as producer:
        for n in range(500):
            producer.send(
                name, b"%d" % n, key=None if n % 2 else b"k", partition=n % 2, headers={"n": b"%d" % n}
            )
    seen: dict[int, list[tuple[int, bytes]]] = {0: [], 1: []}
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
        while sum(map(len, seen.values())) < 500:
            rows = consumer.poll_arrow(SECONDS, 100)
            assert rows.num_rows
            (partition,) = set(rows["partition"].to_pylist())
            assert set(rows["topic"].to_pylist()) == {name}
            seen[partition] += zip(rows["offset"].to_pylist(), rows["value"].to_pylist(), strict=True)
            assert rows["headers"][0].as_py()[0]["key"] == "n"
    for partition, values in seen.items():
        assert values == [(n, b"%d" % (2 * n + partition)) for n in range(250)]


def test_a_consumer_waits_for_what_is_yet_to_come(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    with (
        Consumer(**logins.ours(bootstrap)) as consumer,
        Producer(**logins.ours(bootstrap)) as producer,
    ):
        consumer.assign([tp])
        assert consumer.position(tp) == 0
        producer.send(name, b"now").result(SECONDS)
        assert [record.value for record in consumer.poll(SECONDS)] == [b"now"]


def test_an_offset_that_is_gone_is_raised_or_passed_by_the_policy(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    tp = TopicPartition(name, 0)
    with Producer(**logins.ours(bootstrap)) as producer:
        producer.send(name, b"only")
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 50)
        with pytest.raises(KafkaError) as caught:
            consumer.poll(SECONDS)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with Consumer(**logins.ours(bootstrap), auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 50)
        assert [record.value for record in consumer.poll(SECONDS)] == [b"only"]


async def test_the_asynchronous_face_does_the_same(bootstrap: str, topic: MakeTopic) -> None:
    name = topic()
    async with asyncio.timeout(SECONDS):
        async with AsyncProducer(**logins.ours(bootstrap), compression_type="zstd") as producer:
            deliveries = [await producer.send(name, b"%d" % n) for n in range(100)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(100))
        values: list[bytes] = []
        async with AsyncConsumer(**logins.ours(bootstrap), auto_offset_reset="earliest") as consumer:
            await consumer.assign([TopicPartition(name, 0)])
            async for record in consumer:
                values.append(record.value)
                if len(values) == 100:
                    break
    assert values == [b"%d" % n for n in range(100)]


# -- answers that get lost


def test_lost_answers_neither_lose_nor_double_nor_reorder_records(proxied: Any) -> None:
    proxy, server = proxied
    name = "own-client-idempotence"
    server.create_topic(name)
    with Producer(
        **logins.ours(proxy.bootstrap), batch_size=500, linger_ms=0, retry_backoff_ms=5
    ) as producer:
        producer.send(name, b"first").result(SECONDS)
        for cut in range(4):
            proxy.lose_answers(0, 1)
            for n in range(200):
                producer.send(name, b"%d:%03d" % (cut, n))
            producer.flush(SECONDS)
            assert proxy.lost == 1
    records = read(proxy.bootstrap, name, 801)
    assert [record.value for record in records] == [
        b"first",
        *(b"%d:%03d" % (cut, n) for cut in range(4) for n in range(200)),
    ]
    with Consumer(**logins.ours(proxy.bootstrap)) as consumer:
        assert consumer.end_offsets([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 801}


def test_lost_fetch_answers_cost_nothing(proxied: Any) -> None:
    proxy, server = proxied
    name = "own-client-lost-fetches"
    server.create_topic(name)
    with Producer(**logins.ours(proxy.bootstrap)) as producer:
        for n in range(2_000):
            producer.send(name, b"%d" % n * 50)
    values: list[bytes] = []
    with Consumer(
        **logins.ours(proxy.bootstrap),
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=20_000,
        reconnect_backoff_ms=5,
    ) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        while len(values) < 2_000:
            if len(values) in range(400, 1_200):
                proxy.lose_answers(1, 1)
            came = consumer.poll(SECONDS, 200)
            assert came
            values += [record.value for record in came]
    assert values == [b"%d" % n * 50 for n in range(2_000)]
