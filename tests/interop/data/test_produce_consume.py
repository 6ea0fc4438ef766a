"""What is produced is what is consumed: every client, codec and acks, and the corners of a record."""

from __future__ import annotations

import random

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def _fields(reads):
    return [(record.key, record.value, record.headers) for record in reads]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_acks_round_trips_in_order(client, topic, row, codec, acks):
    name = topic()
    rows = [row(key=b"k%d" % (n // 20), value=b"value %d " % n + b"x" * n) for n in range(60)]
    sent = client.produce(name, rows, codec=codec, acks=acks)
    results = client.consume(name, count=len(rows))
    assert _fields(results) == [(record.key, record.value, ()) for record in rows]
    assert [record.offset for record in results] == list(range(60))
    if acks != "0" and client.name != "kcat":
        assert [record.offset for record in sent] == list(range(60))


def test_headers_keep_names_values_order_and_repeats(client, topic, row):
    name = topic()
    headers = (
        ("trace", b"abc"),
        ("n", b"1"),
        ("n", b"2"),
        ("empty", b""),
        ("nul", None),
        ("ünï", "ö".encode()),
    )
    if client.name == "kcat":
        headers = headers[:3]  # its -H and its %h can say no more than this unambiguously
    elif client.name == "kafka-python":
        headers = (*headers[:4], headers[5])  # it sends no null header values
    client.produce(name, [row(value=b"v", headers=headers)])
    assert client.consume(name, count=1)[0].headers == headers


def test_null_and_empty_keys_and_values_stay_apart(client, topic, row):
    name = topic()
    rows = [row(value=None, key=b"gone"), row(value=b"v", key=None)]
    if client.name != "kcat":  # it sends what is empty as null
        rows += [row(value=b"", key=b"k"), row(value=b"v", key=b"")]
    if client.name in {"confluent-kafka", "kcat"}:  # the others insist on one of the two
        rows += [row(value=None, key=None)]
    client.produce(name, rows)
    assert _fields(client.consume(name, count=len(rows))) == [
        (record.key, record.value, ()) for record in rows
    ]


def test_every_byte_value_survives(client, topic, row):
    name = topic()
    value = bytes(range(256)) * 4
    client.produce(name, [row(value=value)])
    assert client.consume(name, count=1)[0].value == value


def test_a_record_just_below_the_limit_is_taken(client, topic, row):
    name = topic(**{"max.message.bytes": "1048588"})
    value = random.Random(1).randbytes(1_048_000)
    client.produce(name, [row(value=value)], request_bytes_max=2_000_000)
    assert client.consume(name, count=1)[0].value == value


def test_a_record_above_the_limit_is_refused_and_the_partition_goes_on(client, topic, row):
    name = topic(**{"max.message.bytes": "100000"})
    large = row(value=random.Random(2).randbytes(150_000))
    with pytest.raises(Exception, match="error 10:"):
        client.produce(name, [large], request_bytes_max=2_000_000)
    client.produce(name, [row(value=b"small")])
    results = client.consume(name, count=1)
    assert [(record.offset, record.value) for record in results] == [(0, b"small")]


def test_the_limit_counts_compressed_bytes(client, topic, row):
    name = topic(**{"max.message.bytes": "100000"})
    value = b"compressible " * 50_000
    client.produce(name, [row(value=value)], codec="gzip", request_bytes_max=2_000_000)
    assert client.consume(name, count=1)[0].value == value


def test_several_megabytes_come_back_whole(client, topic, row):
    name = topic()
    chance = random.Random(3)
    rows = [row(value=chance.randbytes(300_000)) for _ in range(20)]
    client.produce(name, rows)
    assert [record.value for record in client.consume(name, count=20)] == [record.value for record in rows]


def test_create_time_is_the_producers(client, topic, row):
    if client.name == "kcat":
        pytest.skip("kcat cannot be given a timestamp")
    name = topic(**{"retention.ms": "-1"})
    stamps = [1_600_000_000_123, 1_500_000_000_000, 1_700_000_000_999]
    client.produce(name, [row(value=b"v", timestamp_ms=stamp) for stamp in stamps])
    results = client.consume(name, count=3)
    assert [(outcome.timestamp_ms, outcome.timestamp_type) for outcome in results] == [
        (stamp, "CreateTime") for stamp in stamps
    ]


def test_log_append_time_is_the_brokers(client, topic, row):
    if client.name == "kcat":
        pytest.skip("kcat does not tell the timestamp's type")
    name = topic(**{"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
    past = 1_500_000_000_000
    sent = client.produce(name, [row(value=b"v", timestamp_ms=past) for _ in range(3)])
    results = client.consume(name, count=3)
    assert {outcome.timestamp_type for outcome in results} == {"LogAppendTime"}
    assert all(outcome.timestamp_ms > past for outcome in results)
    assert [sent_row.timestamp_ms for sent_row in sent] == [outcome.timestamp_ms for outcome in results]


def test_reading_may_start_at_the_earliest_record(client, topic, row):
    name = topic()
    client.produce(name, [row(value=b"%d" % n) for n in range(3)])
    assert [record.value for record in client.consume(name, count=3, start=None)] == [b"0", b"1", b"2"]


def test_reading_may_start_in_the_middle_of_a_batch(client, topic, row):
    name = topic()
    client.produce(name, [row(value=b"%d" % n) for n in range(50)], codec="zstd")
    results = client.consume(name, count=5, start=23)
    assert [(record.offset, record.value) for record in results] == [(n, b"%d" % n) for n in range(23, 28)]


def test_partitions_keep_their_own_order_and_offsets(client, topic, row):
    name = topic(partitions=3)
    rows = [row(value=b"%d" % n, partition=n % 3) for n in range(30)]
    client.produce(name, rows)
    for partition in range(3):
        results = client.consume(name, count=10, partition=partition)
        assert [(record.offset, record.value) for record in results] == [
            (i, b"%d" % (i * 3 + partition)) for i in range(10)
        ]


@pytest.mark.parametrize("setting", ["gzip", "zstd", "uncompressed", "producer"])
def test_the_topics_own_compression_does_not_change_the_records(client, topic, row, setting):
    name = topic(**{"compression.type": setting})
    rows = [row(key=b"k", value=b"value %d " % n * 20) for n in range(20)]
    client.produce(name, rows, codec="lz4")
    assert _fields(client.consume(name, count=20)) == [(record.key, record.value, ()) for record in rows]
