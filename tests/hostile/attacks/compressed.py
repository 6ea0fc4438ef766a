"""Batches that are small on the wire and large once they are opened, with every codec; and bombs."""

from __future__ import annotations

from typing import Final

from tests.hostile.attack import TARGET_PARTITIONS, TARGET_TOPIC, Attack, Stage
from tests.hostile.figures import MEBIBYTE
from tests.interop.wire import batch, record, records

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.records.codec import Codec, compress

_CODECS: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_RECORD_BYTES: Final = 100
_WIRE_BYTES_MAX: Final = 900_000
_WIDE_TOPIC: Final = "wide"
_WIDE_PARTITIONS: Final = 20
_REPACKED_TOPIC: Final = "repacked"
_REFUSALS: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_REQUEST,
    }
)


def _prepare(stage: Stage) -> None:
    stage.create_topic(_WIDE_TOPIC, partitions=_WIDE_PARTITIONS)
    stage.create_topic(_REPACKED_TOPIC, partitions=_WIDE_PARTITIONS, compression_type="zstd")


def _many_records(stage: Stage) -> None:
    """A batch for each of twenty partitions in one request, again and again."""
    expanded_bytes = stage.scale.count(10_000_000, 2_000_000)
    value = bytes(_RECORD_BYTES)
    count = expanded_bytes // (_RECORD_BYTES + 8)
    content = b"".join(record(value, offset_delta=number) for number in range(count))
    stage.notes["expanded_bytes_of_a_request"] = len(content) * _WIDE_PARTITIONS
    for codec in _CODECS:
        made = batch(compress(codec, content), count, codec=codec.value)
        if len(made) > _WIRE_BYTES_MAX:
            continue  # snappy and lz4 do not make it small enough: a broker sees how large it is
        for topic in (_WIDE_TOPIC, _REPACKED_TOPIC):
            codes = _produce(stage, topic, made, _WIDE_PARTITIONS)
            stage.notes[f"{codec.name.lower()}_to_{topic}"] = (
                f"{len(made) * _WIDE_PARTITIONS:,} bytes: "
                + ", ".join(sorted(ErrorCode(code).name for code in set(codes)))
            )
            stage.must(set(codes) <= _REFUSALS, f"{codec.name} to {topic}: answered with {set(codes)}")


def _bombs(stage: Stage) -> None:
    """One record of nothing but zeros, as large as the codec makes it."""
    expanded_bytes = stage.scale.count(512, 128) * MEBIBYTE
    for codec in _CODECS:
        zeros = bytes(expanded_bytes if codec in {Codec.GZIP, Codec.ZSTD} else 16 * MEBIBYTE)
        content = compress(codec, records(zeros))
        del zeros
        made = batch(content, 1, codec=codec.value)
        if len(made) > _WIRE_BYTES_MAX:
            continue
        codes = _produce(stage, TARGET_TOPIC, made, TARGET_PARTITIONS)
        stage.notes[codec.name.lower()] = f"{len(made):,} bytes: " + ", ".join(
            sorted(ErrorCode(code).name for code in set(codes))
        )
        stage.must(set(codes) <= _REFUSALS, f"{codec.name}: answered with {set(codes)}")


def _produce(stage: Stage, topic: str, made: bytes, partitions: int) -> list[int]:
    data = [PartitionProduceData(index=index, records=made) for index in range(partitions)]
    asked = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    with stage.connect() as peer:
        response = peer.ask(asked, 8)
    return [partition.error_code for partition in response.responses[0].partition_responses]


ATTACKS: Final = (
    Attack(
        name="batches that expand",
        claim="a request of compressed batches counts by what it expands to, and opens them off the loop",
        run=_many_records,
        prepare=_prepare,
    ),
    Attack(
        name="bombs",
        claim="a batch that would expand beyond all bounds costs no more than the bound",
        run=_bombs,
        grown_bytes_max=400 * MEBIBYTE,
    ),
)
