"""What came out, compared with what was there: each record once, and in its key's order."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from odradek import Consumer, TopicPartition
from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.model.errors import KafkaError

Row = tuple[bytes, bytes]
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`lost`, `doubled`, `foreign` and `disordered` name examples by key and number."""

    source_count: int
    target_count: int
    lost: list[str]
    doubled: list[str]
    foreign: list[str]
    """The rows that are in the output, but not in the input."""
    disordered: list[str]
    """Keys whose records came out in another order than they went in."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.doubled or self.foreign or self.disordered)

    def text(self) -> str:
        lines = [
            f"{self.source_count:,} records in, {self.target_count:,} out: lost {len(self.lost)}, doubled"
            f" {len(self.doubled)}, foreign {len(self.foreign)}, keys out of order {len(self.disordered)}"
        ]
        for name in ("lost", "doubled", "foreign", "disordered"):
            examples = getattr(self, name)[:5]
            lines += [f"  {name}: {', '.join(examples)}"] if examples else []
        return "\n".join(lines)


def compare(source: Sequence[Row], target: Sequence[Row]) -> Outcome:
    """Rows of both topics, each partition in the order of its offsets. A key has one partition in each topic."""
    before, after = Counter(source), Counter(target)
    keys_before, keys_after = _by_key(source), _by_key(target)
    return Outcome(
        source_count=len(source),
        target_count=len(target),
        lost=_names(before - after),
        doubled=_names(Counter({row: count for row, count in (after - before).items() if row in before})),
        foreign=_names(Counter({row: count for row, count in after.items() if row not in before})),
        disordered=sorted(
            key.decode() for key, values in keys_before.items() if _is_disordered(values, keys_after[key])
        ),
    )


def _is_disordered(before: list[bytes], after: list[bytes]) -> bool:
    """Losses and doubles are no disorder: only what stands in both, by its first place, is compared."""
    left, right = dict.fromkeys(before), dict.fromkeys(after)
    return [value for value in left if value in right] != [value for value in right if value in left]


def _by_key(rows: Sequence[Row]) -> defaultdict[bytes, list[bytes]]:
    records: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key, value in rows:
        records[key].append(value)
    return records


def _names(rows: Counter[Row]) -> list[str]:
    return sorted(f"{key.decode()}:{value.decode()}" for key, value in rows)


def read_rows(servers: str, topic: str, partitions: int, timeout_s: float) -> list[Row]:
    """All committed rows below the ends of the logs. AssertionError when an open transaction holds them back for so long."""
    wanted = [TopicPartition(topic, number) for number in range(partitions)]
    rows: dict[int, list[Row]] = {number: [] for number in range(partitions)}
    with (
        Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
        Consumer(servers) as plain,
    ):
        consumer.assign(wanted)
        ends = plain.end_offsets(wanted)
        deadline = time.monotonic() + timeout_s
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            assert time.monotonic() < deadline, f"a transaction in {topic} is open and holds back its readers"
            for record in consumer.poll(_POLL_SECONDS):
                rows[record.partition].append(_row(record))
    return [row for part in rows.values() for row in part]


def _row(record: ConsumerRecord) -> Row:
    return record.key or b"", record.value or b""


class Progress:
    """How many committed records the target holds, as they become visible."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(servers, isolation_level="read_committed", auto_offset_reset="earliest")
        self._consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        self.count = 0

    def look(self) -> int:
        try:
            self.count += len(self._consumer.poll(_POLL_SECONDS))
        except KafkaError:
            pass  # a broker is down: later
        return self.count

    def close(self) -> None:
        self._consumer.close()
