"""What readers of committed records see."""

from __future__ import annotations

from typing import Any

from odradek import Consumer, TopicPartition


def committed_values(topic: Any, partitions: int = 1) -> list[bytes]:
    """All values up to the last stable offset, in the order of arrival."""
    values: list[bytes] = []
    wanted = [TopicPartition(topic.name, number) for number in range(partitions)]
    with Consumer(topic.servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(wanted)
        ends = consumer.end_offsets(wanted)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            values += [record.value for record in consumer.poll(1.0)]
    return values


def numbers(start: int, end: int) -> list[bytes]:
    """What `Topic.send_numbers` sends."""
    return [b"%d" % number for number in range(start, end)]
