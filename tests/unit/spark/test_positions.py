"""A position becomes one wish per partition, and must name every partition or none."""

from __future__ import annotations

import pytest

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.options.positions import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Position,
    RequestedPosition,
    UniformPosition,
    requested_positions,
)

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("position", "wanted"),
    [
        (UniformPosition(bound=EARLIEST), RequestedPosition(question=EARLIEST)),
        (AtTime(timestamp_ms=5), RequestedPosition(question=5)),
        (AtTimes(timestamps_ms={A: 5, B: 5}), RequestedPosition(question=5)),
        (AtOffsets(offsets={A: 7, B: 7}), RequestedPosition(offset=7)),
        (AtOffsets(offsets={A: LATEST, B: LATEST}), RequestedPosition(question=LATEST)),
    ],
)
def test_every_partition_gets_its_wish(position: Position, wanted: RequestedPosition) -> None:
    assert requested_positions(position, [A, B], "startingOffsets") == {A: wanted, B: wanted}


def test_a_partition_left_out_is_named() -> None:
    with pytest.raises(ConfigError, match=r"leaves out t-1"):
        requested_positions(AtOffsets(offsets={A: 7}), [A, B], "startingOffsets")


def test_a_partition_too_many_is_named() -> None:
    with pytest.raises(ConfigError, match=r"do not exist: t-1"):
        requested_positions(AtTimes(timestamps_ms={A: 7, B: 8}), [A], "startingOffsetsByTimestamp")
