"""What is written to the topics of a program, and when it comes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import pyarrow as pa

from benchmarks.streams.contestants import Side, SideFailedError
from benchmarks.streams.inputs import Expectation, RoundInput
from odradek.client import Consumer, Producer
from odradek.model.ids import TopicPartition

_POLL_S: Final = 0.02
_ROWS_AT_ONCE: Final = 20_000
OVERDUE_S: Final = 240.0
_FINISHED: Final = "the output is as expected"


class InputProducer:
    """Writes a round's input in one transaction: the programs see all of it at once, at `commit`."""

    def __init__(self, servers: str, name: str) -> None:
        self._producer = Producer(servers, transactional_id=f"bench-{name}", linger_ms=5)
        self._producer.init_transactions()

    def write(self, work: RoundInput, topics: Sequence[str]) -> None:
        self._producer.begin_transaction()
        for place, rows in work.rows:
            for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                self._producer.send_arrow(topics[place], rows.slice(start, _ROWS_AT_ONCE))
        self._producer.flush()

    def commit(self) -> None:
        self._producer.commit_transaction()

    def close(self) -> None:
        self._producer.close()


class OutputWatch:
    """Reads committed records of an output topic into a table."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            servers, isolation_level="read_committed", auto_offset_reset="earliest", fetch_max_wait_ms=50
        )
        self._consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        self._table: dict[bytes, bytes] = {}
        self._record_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def record_count(self) -> int:
        return self._record_count

    def read(self, timeout_s: float) -> pa.RecordBatch:
        rows: pa.RecordBatch = self._consumer.poll_arrow(timeout_s)
        if rows.num_rows:
            self._record_count += rows.num_rows
            self._table.update(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))
        return rows

    def until(self, expected: Expectation, counted_before: int, side: Side) -> float:
        """When the last record came that was expected, on the monotonic clock. SideFailedError when it does not come."""
        arrived = time.monotonic()
        deadline = arrived + OVERDUE_S
        while True:
            if self.read(_POLL_S).num_rows:
                arrived = time.monotonic()
                if (
                    expected.record_count is None
                    or self._record_count - counted_before < expected.record_count
                ):
                    continue
            difference = self._difference(expected, counted_before)
            if difference == _FINISHED:
                return arrived
            side.check()
            if time.monotonic() > deadline:
                raise SideFailedError(f"{side.name}: {difference}; {side.last_words()}")

    def _difference(self, expected: Expectation, counted_before: int) -> str:
        count = self._record_count - counted_before
        if expected.record_count is not None and count != expected.record_count:
            return f"{count} records came, {expected.record_count} are expected"
        table = self._table
        for key, value in expected.table.items():
            if table.get(key) != value:
                return f"{key!r} is {table.get(key)!r}, and should be {value!r}"
        return _FINISHED
