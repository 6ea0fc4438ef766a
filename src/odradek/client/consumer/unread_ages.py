"""A group's lag in time: the age of the first record of each partition that it has yet to read.

`odradek group describe` and the console read that record's own timestamp, by this file. The brokers' metric
`odradek_consumergroup_lag_seconds` has the same meaning, and estimates it: a scrape reads no records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from odradek.client.consumer.aio import AsyncConsumer
from odradek.model.aliases import ClientSettings
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Clock

PARTITIONS_MAX: Final = 64
"""The number of partitions of which the first unread record is read: those with the largest lags."""
LIMIT_S: Final = 2.0
READING_SETTINGS: Final[ClientSettings] = {
    "enable_auto_commit": False,
    "allow_auto_create_topics": False,
    "auto_offset_reset": "earliest",
    "isolation_level": "read_uncommitted",
    "max_partition_fetch_bytes": 64 << 10,
}
"""Settings of a consumer that reads one record of each partition: it joins no group and commits nothing."""
_POLL_S: Final = 0.25


def furthest_behind(
    positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the positions of the partitions with the largest lags, without those that are read to their end."""
    late = [tp for tp, position in positions.items() if 0 <= position < ends.get(tp, -1)]
    late.sort(key=lambda tp: (positions[tp] - ends[tp], tp))
    return {tp: positions[tp] for tp in late[:PARTITIONS_MAX]}


async def unread_ages_ms(
    consumer: AsyncConsumer[Any, Any],
    positions: Mapping[TopicPartition, int],
    clock: Clock,
    limit_s: float = LIMIT_S,
) -> dict[TopicPartition, int]:
    """Returns the age of the first record at or after each position, in milliseconds, never negative.

    A partition whose record does not come within the limit is left out: it may have none, if all that is left are
    markers of transactions. The consumer is assigned these partitions, and is of use for further calls only.
    """
    times: dict[TopicPartition, int] = {}
    now_ms = clock.wall_ms()
    await consumer.assign(positions)
    consumer.resume(positions)  # an earlier call has paused them
    for tp, offset in positions.items():
        consumer.seek(tp, offset)
    deadline_s = clock.monotonic() + limit_s
    while len(times) < len(positions) and (left_s := deadline_s - clock.monotonic()) > 0:
        records = await consumer.poll(min(left_s, _POLL_S))
        fresh = {TopicPartition(record.topic, record.partition) for record in records} - times.keys()
        for record in reversed(records):
            tp = TopicPartition(record.topic, record.partition)
            if tp in fresh:
                times[tp] = record.timestamp_ms
        consumer.pause(fresh)
    return {tp: max(0, now_ms - at_ms) for tp, at_ms in times.items() if at_ms >= 0}
