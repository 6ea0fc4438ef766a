"""Every option of Spark's source, sink and archive that is a number reads what Java reads, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.hostile_numbers import NO_WHOLE

from odradek.config.options import byte_count
from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options
from odradek.spark.options.positions import partition_numbers

_GIVEN = {"kafka.bootstrap.servers": "h:9092", "subscribe": "flights"}
NUMBERS = (
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "offsetPollIntervalMs",
    "partitionDiscoveryIntervalMs",
)


def _read(option: str, text: str) -> Any:
    return read_options({**_GIVEN, option: text}, Use.STREAM_READ)


@pytest.mark.parametrize("option", NUMBERS)
def test_an_option_refuses_what_java_does_not_read(option: str) -> None:
    for text in NO_WHOLE:
        with pytest.raises(ConfigError, match=option) as refused:
            _read(option, text)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("option", NUMBERS)
def test_an_option_reads_plain_numbers(option: str) -> None:
    assert _read(option, "7") == _read(option, " 7 ") == _read(option, "07") != _read(option, "8")


@pytest.mark.parametrize("wrong", [text for text in NO_WHOLE if len(text) < 100])
def test_a_partition_in_json_is_digits(wrong: str) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        partition_numbers('{"flights": {"%s": 5}}' % wrong, "startingOffsets")  # noqa: UP031 - braces


@pytest.mark.parametrize("read", [lambda text: byte_count(text, "option fileBytes")])
def test_a_count_of_bytes_is_digits(read: Callable[[str], int]) -> None:
    assert read("4096") == read(" 4 KiB ") == read("4k")
    for text in NO_WHOLE:
        with pytest.raises(ConfigError, match="fileBytes"):
            read(text)
