"""Batches written by other clients are read, and what we write is read by them.

The bytes of Java and librdkafka lie in `batches.txt`; kafka-python and aiokafka write and read here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records
import pytest

from odradek.records import (
    BatchBuilder,
    Codec,
    ControlKind,
    check_crc,
    control_batch,
    decode_batch,
    read_control,
    split_batches,
    validate_records,
)
from odradek.records.arrow import batches_to_arrow

Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

RECORDS: list[Written] = [
    (1700000000000, b"first", b"one", []),
    (1700000000005, None, b"two", [("trace", b"abc"), ("empty", None)]),
    (1699999999990, b"third", None, []),
    (1700000000007, b"", b"odradek " * 30, []),
]
GOLDEN = {
    (writer, kind): bytes.fromhex(content)
    for writer, kind, content in (
        line.split()
        for line in Path(__file__).with_name("batches.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}
MANY: list[Written] = [
    (
        1700000000000 + number,
        b"key-%d" % number,
        b"value " * (number % 50),
        [("n", b"%d" % number)] * (number % 3),
    )
    for number in range(2_000)
]


def _built(records: list[Written], codec: Codec, **producer: Any) -> bytearray:
    builder = BatchBuilder(codec)
    for record in records:
        builder.append(*record)
    return builder.build(**producer)


def _read(batch: bytes) -> list[Written]:
    [(header, view)] = split_batches(batch)
    check_crc(view)
    assert validate_records(view, header).record_count == header.record_count
    records = [
        (record.timestamp, record.key, record.value, list(record.headers)) for record in decode_batch(view)
    ]
    rows = batches_to_arrow(batch).to_pylist()
    assert [(row["timestamp"], row["key"], row["value"]) for row in rows] == [
        record[:3] for record in records
    ]
    return records


@pytest.mark.parametrize("writer", ["java", "librdkafka"])
@pytest.mark.parametrize("codec", list(Codec))
def test_golden_batches_are_read(writer: str, codec: Codec) -> None:
    batch = GOLDEN[writer, codec.name.lower()]
    [(header, _)] = split_batches(batch)
    assert header.codec is codec
    assert header.producer_id == 4000
    assert _read(batch) == RECORDS


def test_an_uncompressed_batch_is_java_s_to_the_byte() -> None:
    batch = _built(RECORDS, Codec.NONE, producer_id=4000, producer_epoch=2, base_sequence=17)
    assert batch == GOLDEN["java", "none"]


@pytest.mark.parametrize("kind", list(ControlKind))
def test_markers_are_java_s_to_the_byte(kind: ControlKind) -> None:
    golden = GOLDEN["java", kind.name.lower()]
    assert control_batch(kind, 4000, 2, coordinator_epoch=6, timestamp=1700000000009) == golden
    assert read_control(golden).kind is kind


def _peers() -> list[Any]:
    """(module, codec) for every codec that the peer can use as it is installed here."""
    pairs = [(kafka_python_records, codec) for codec in Codec if codec is not Codec.SNAPPY]
    pairs += [(aiokafka_records, codec) for codec in Codec]
    return [
        pytest.param(*pair, id=f"{pair[0].__name__.split('.')[0]}-{pair[1].name.lower()}") for pair in pairs
    ]


@pytest.mark.parametrize(("peer", "codec"), _peers())
@pytest.mark.parametrize("records", [RECORDS, MANY], ids=["few", "many"])
def test_what_a_peer_builds_is_read(peer: Any, codec: Codec, records: list[Written]) -> None:
    builder = peer.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(number, timestamp, key, value, headers) is not None
    batch = bytes(builder.build())
    assert _read(batch) == records


@pytest.mark.parametrize(("peer", "codec"), _peers())
@pytest.mark.parametrize("records", [RECORDS, MANY], ids=["few", "many"])
def test_what_we_build_a_peer_reads(peer: Any, codec: Codec, records: list[Written]) -> None:
    batch = peer.DefaultRecordBatch(bytes(_built(records, codec)))
    assert batch.validate_crc()
    assert batch.compression_type == codec
    assert [(record.timestamp, record.key, record.value, list(record.headers)) for record in batch] == records
