"""What one client writes, every other one reads, codec by codec."""

from __future__ import annotations

import pytest

NAMES = ("confluent-kafka", "kafka-python", "aiokafka", "kcat")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("writer", NAMES)
def test_all_clients_read_the_same_records(clients, topic, row, writer, codec):
    name = topic()
    rows = [
        row(key=b"k%d" % n, value=b"value %d " % n * 30, headers=(("by", writer.encode()),))
        for n in range(10)
    ]
    clients[writer].produce(name, rows, codec=codec)
    expected = [(n, record.key, record.value, record.headers) for n, record in enumerate(rows)]
    stamps = set()
    for reader, client in clients.items():
        results = client.consume(name, count=10)
        assert [
            (record.offset, record.key, record.value, record.headers) for record in results
        ] == expected, reader
        stamps.add(tuple(outcome.timestamp_ms for outcome in results))
    assert len(stamps) == 1


def test_writers_may_take_turns_in_one_partition(clients, topic, row):
    name = topic()
    expected = []
    writers = list(clients)
    for number in range(8):
        writer = writers[number % len(writers)]
        value = f"{number} by {writer}".encode()
        clients[writer].produce(name, [row(value=value)], codec=("none", "gzip", "lz4", "zstd")[number // 2])
        expected.append(value)
    for reader, client in clients.items():
        assert [record.value for record in client.consume(name, count=8)] == expected, reader
