"""What was appended, acknowledged and committed in `replicas_model`, and what must hold of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.ledger import ReadRecord
from tests.simulation.storage.store import read_all, read_found

from odradek.replication.partition import Partition
from odradek.testing.sim.failures import ViolationError


@dataclass(slots=True)
class SeenMarks:
    """What was seen of one replica in one life."""

    broker: int = -1
    high_watermark: int = 0
    checked: int = 0
    """Everything below was compared with what others had."""


class ReplicasHistory:
    """Of one partition, outside of every broker."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.committed: dict[int, bytes] = {}
        """What was seen below a high watermark, by offset."""
        self._waiting: list[tuple[int, bytes, asyncio.Future[None] | None]] = []

    def appended(self, offset: int, value: bytes, future: asyncio.Future[None] | None) -> None:
        """A producer waits for the future; without one the record is acknowledged at once."""
        self._waiting.append((offset, value, future))

    def poll(self) -> None:
        """Note what was acknowledged since."""
        waiting, self._waiting = self._waiting, []
        for offset, value, future in waiting:
            if future is not None and not future.done():
                self._waiting.append((offset, value, future))
            elif future is None or future.exception() is None:
                self.acknowledged[offset] = value

    def check(self, seen: SeenMarks, partition: Partition) -> None:
        """Its high watermark lies within its log and never went back; what is below is what others have there."""
        mark, log = partition.high_watermark, partition.log
        if not log.start_offset <= mark <= log.end_offset:
            raise ViolationError(
                f"broker {seen.broker} holds {log.start_offset} to {log.end_offset}, its high watermark is {mark}"
            )
        if mark < seen.high_watermark:
            raise ViolationError(
                f"the high watermark of broker {seen.broker} went back from {seen.high_watermark} to {mark}"
            )
        seen.high_watermark = mark
        seen.checked = max(seen.checked, log.start_offset)
        while seen.checked < mark:
            for record in read_found(log, seen.checked, log.end_offset, 1 << 16):
                if record.offset < mark:
                    self._check_record(seen.broker, record)
                    seen.checked = record.offset + 1

    def _check_record(self, broker: int, record: ReadRecord) -> None:
        known = self.committed.setdefault(record.offset, record.value)
        if known != record.value:
            raise ViolationError(
                f"broker {broker} has {record.value!r} at {record.offset}, where {known!r} was committed"
            )

    def compare(self, partitions: Sequence[Partition]) -> None:
        """In the end: what was committed or acknowledged is there, and the replicas are equal."""
        logs = [partition.log for partition in partitions]
        held = {record.offset: record.value for record in read_all(logs[0])}
        for what, records in (("committed", self.committed), ("acknowledged", self.acknowledged)):
            for offset, value in records.items():
                if held.get(offset) != value:
                    raise ViolationError(f"{value!r} was {what} at {offset}, where {held.get(offset)!r} is")
        if len({bytes(log.read(0, 1 << 30, end_offset=log.end_offset).records) for log in logs}) != 1:
            raise ViolationError("the replicas differ in their bytes")
