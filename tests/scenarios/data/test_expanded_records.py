"""Records that expand: the limit for one of a compressed batch (`max.decompressed.message.bytes`), and lies about sizes."""

from typing import Any

import pytest

from odradek.model.errors import ErrorCode
from odradek.protocol.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.records import BatchHeader, Codec, compress
from odradek.records.batch import HEADER_BYTES, write_header

BROKER = 4


async def change(wire: Any, key: str, value: str) -> int:
    """Sets a dynamic setting of broker 1; returns the error code."""
    config = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    response = await wire.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(response.responses[0].error_code)


def declaring(body_bytes: int) -> bytearray:
    """A compressed batch, right in all else, whose one record declares so many bytes and holds eight."""
    zigzag, length = 2 * body_bytes, bytearray()
    while zigzag > 0x7F:
        length.append(0x80 | zigzag & 0x7F)
        zigzag >>= 7
    record = bytes([*length, zigzag, 0, 0, 0, 2, 107, 2, 118, 0])
    packed = compress(Codec.ZSTD, record)
    batch = bytearray(HEADER_BYTES) + packed
    said = dict.fromkeys(BatchHeader._fields, 0) | {
        "partition_leader_epoch": -1,
        "magic": 2,
        "record_count": 1,
    }
    said |= {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "attributes": int(Codec.ZSTD)}
    write_header(batch, BatchHeader(**said))
    return batch


async def test_a_record_that_expands_beyond_the_topic_s_limit_is_refused(wire: Any) -> None:
    await wire.create("t", max_decompressed_message_bytes="1000")
    small, large = b"x" * 900, b"x" * 1_100
    assert (await wire.produce("t", [small] * 10, codec=Codec.GZIP)).error_code == 0
    refused = await wire.produce("t", [small, large], codec=Codec.GZIP)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert "max.decompressed.message.bytes is 1000" in refused.error_message
    assert refused.record_errors == []
    assert (await wire.produce("t", [large])).error_code == 0, (
        "max.message.bytes alone bounds what is not compressed"
    )
    assert await wire.values("t") == [small] * 10 + [large]


async def test_a_broker_s_limit_for_expanded_records_holds_for_topics_without_one(wire: Any) -> None:
    await wire.create("inherits")
    await wire.create("own", max_decompressed_message_bytes="5000")
    assert await change(wire, "max.decompressed.message.bytes", "1000") == 0
    value = b"x" * 1_100
    assert (await wire.produce("inherits", [value], codec=Codec.LZ4)).error_code == ErrorCode.INVALID_RECORD
    assert (await wire.produce("own", [value], codec=Codec.LZ4)).error_code == 0
    for not_allowed in ("0", "-1", "2147483640"):
        assert await change(wire, "max.decompressed.message.bytes", not_allowed) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("body_bytes", [0, 7, 9, 1_000_000, 2**31 - 9, 2**31 - 1])
async def test_a_record_may_declare_any_size_and_costs_nothing(
    wire: Any, make_produce: Any, body_bytes: int
) -> None:
    await wire.create("t")
    response = await wire.ask(make_produce("t", declaring(body_bytes)), 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
    honest = await wire.ask(make_produce("t", declaring(8)), 9)
    assert honest.responses[0].partition_responses[0].error_code == 0
    assert await wire.values("t") == [b"v"]
