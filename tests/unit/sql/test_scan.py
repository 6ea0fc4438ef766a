"""The order in which a push query gives the records of a poll."""

from __future__ import annotations

from types import SimpleNamespace

from odradek.sql.queries.scan import by_time


def test_a_partition_keeps_its_order_whatever_its_timestamps_are() -> None:
    records = [
        SimpleNamespace(partition=partition, offset=offset, timestamp_ms=time_ms)
        for partition, offset, time_ms in ((0, 0, 10), (0, 1, 5), (0, 2, 30), (1, 0, 7), (1, 1, 20))
    ]
    assert [(record.partition, record.offset) for record in by_time(records)] == [
        (1, 0),
        (0, 0),
        (0, 1),
        (1, 1),
        (0, 2),
    ]
