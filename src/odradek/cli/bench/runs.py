"""The three measurements: records sent, records read, and a record's way from the one to the other."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Final

from odradek.cli.bench.latencies import LatencyHistogram, paced
from odradek.model.errors import ErrorValue

if TYPE_CHECKING:
    from odradek.client import Consumer, Producer
    from odradek.client.producer.delivery import Delivery
    from odradek.model.ids import TopicPartition

SAMPLE_EVERY_S: Final = 0.0005
"""The latency of a record is taken at most so often: a callback for each of a million records would be what is measured."""
POLL_S: Final = 0.1
LATE_MAX_S: Final = 30.0
"""The seconds that the last records of an end-to-end run may take."""
_PAYLOADS: Final = 64
_MOMENT_BYTES: Final = 8
Show = Callable[[int, float], object]
"""Hears how many records there are so far, and after how many seconds."""


@dataclass(slots=True, kw_only=True)
class Measured:
    """The outcome of one measurement."""

    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    rates: list[float] = field(default_factory=list)
    """Records a second, in each second of the run."""
    latencies: dict[str, LatencyHistogram] = field(default_factory=dict)
    """By what was waited for."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds > 0 else 0.0


class SecondTicks:
    """Turns a count that grows into rates, one for each second, and shows it once a second."""

    def __init__(self, show: Show) -> None:
        self.rates: list[float] = []
        self._show = show
        self._began = self._ticked = time.perf_counter()
        self._next = self._began + 1.0
        self._count = 0

    def note(self, count: int, now: float) -> None:
        """Notes the count at this moment (of `time.perf_counter`)."""
        if now >= self._next:
            self.rates.append((count - self._count) / (now - self._ticked))
            self._ticked, self._count = now, count
            self._next = now + 1.0
            self._show(count, now - self._began)

    def end(self, count: int, now: float) -> list[float]:
        """Returns all rates; the last one is of what is left of a second, if that is worth a bar."""
        if now - self._ticked >= 0.2 or not self.rates:
            self.rates.append((count - self._count) / max(now - self._ticked, 1e-9))
        return self.rates


def payloads(size: int) -> Sequence[bytes]:
    """Returns some values of this size, of random letters and digits: compression takes a quarter of them away."""
    return [os.urandom(size // 2 + 1).hex().encode()[:size] for _ in range(_PAYLOADS)]


def measure_sending(
    producer: Producer[bytes, bytes],
    topic: str,
    values: Sequence[bytes],
    *,
    rate: float | None,
    count: int | None,
    seconds: float | None,
    show: Show,
) -> Measured:
    """Sends records, as fast as the producer takes them or at a rate, until all are acknowledged. KafkaError.

    With a rate a latency begins at the moment that the record was due, also where the producer was late: what waits before it
    is sent waits as well (coordinated omission).
    """
    acknowledged = LatencyHistogram()
    measured = Measured(latencies={"acknowledged": acknowledged})
    began = time.perf_counter()
    ticks, sampled_at, sent = SecondTicks(show), began, 0
    for moment, value in zip(paced(rate, count, seconds), cycle(values), strict=False):
        now = time.perf_counter()
        if rate is None:
            if seconds is not None and now - began >= seconds:
                break
            due = now
        else:
            due = began + moment
            if due > now:
                time.sleep(due - now)
                now = time.perf_counter()
        delivery = producer.send(topic, value)
        sent += 1
        measured.bytes += len(value)
        if now - sampled_at >= SAMPLE_EVERY_S:
            sampled_at = now
            delivery.add_done_callback(_noting(acknowledged, due))
        ticks.note(sent, now)
    producer.flush()
    ended = time.perf_counter()
    measured.records, measured.seconds = sent, ended - began
    measured.rates = ticks.end(sent, ended)
    return measured


def measure_reading(
    consumer: Consumer[bytes, bytes],
    ends: dict[TopicPartition, int],
    *,
    count: int | None,
    seconds: float | None,
    show: Show,
) -> Measured:
    """Reads assigned partitions up to these offsets, or for `count` records, or for `seconds`. The clock
    starts with the poll that returns the first record."""
    measured = Measured()
    waiting = time.perf_counter()
    began: float | None = None
    ticks = SecondTicks(show)
    now = waiting
    while _is_behind(consumer, ends) and (count is None or measured.records < count):
        asked = time.perf_counter()
        records = consumer.poll(POLL_S)
        now = time.perf_counter()
        if records and began is None:
            began, ticks = asked, SecondTicks(show)
        measured.records += len(records)
        measured.bytes += sum(len(record.value or b"") for record in records)
        ticks.note(measured.records, now)
        if seconds is not None and now - (began or waiting) >= seconds:
            break
    measured.seconds = now - (began if began is not None else waiting)
    measured.rates = ticks.end(measured.records, now)
    return measured


def _is_behind(consumer: Consumer[bytes, bytes], ends: dict[TopicPartition, int]) -> bool:
    positions = consumer.positions()
    return any(positions.get(partition, 0) < end for partition, end in ends.items())


class WayOfRecords:
    """Sends records at a rate while a thread reads them back: how long until acknowledged, and until read."""

    def __init__(
        self, producer: Producer[bytes, bytes], consumer: Consumer[bytes, bytes], topic: str
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._acknowledged = LatencyHistogram()
        self._read = LatencyHistogram()
        self._ended = threading.Event()
        self._reading_error: ErrorValue[Exception] | None = None

    def measure(self, size: int, *, rate: float, seconds: float, show: Show) -> Measured:
        """Measures for some seconds. The consumer is assigned, and at the end of its partitions. KafkaError, TimeoutError."""
        reader = threading.Thread(target=self._read_all, name="odradek-bench-reader", daemon=True)
        reader.start()
        try:
            measured = self._send(size, rate=rate, seconds=seconds, show=show)
            self._wait_for(measured.records)
        finally:
            self._ended.set()
            reader.join()
        if self._reading_error is not None:
            raise self._reading_error.exception()
        measured.latencies = {"acknowledged": self._acknowledged, "read": self._read}
        return measured

    def _send(self, size: int, *, rate: float, seconds: float, show: Show) -> Measured:
        filling = os.urandom(size)[_MOMENT_BYTES:]
        began, ticks, sent = time.perf_counter(), SecondTicks(show), 0
        for moment in paced(rate, None, seconds):
            due = began + moment
            pause_s = due - time.perf_counter()
            if pause_s > 0:
                time.sleep(pause_s)
            if self._reading_error is not None:
                break
            value = int(due * 1e9).to_bytes(_MOMENT_BYTES, "big") + filling
            self._producer.send(self._topic, value).add_done_callback(_noting(self._acknowledged, due))
            sent += 1
            ticks.note(sent, time.perf_counter())
        self._producer.flush()
        ended = time.perf_counter()
        return Measured(
            records=sent,
            bytes=sent * (_MOMENT_BYTES + len(filling)),
            seconds=ended - began,
            rates=ticks.end(sent, ended),
        )

    def _read_all(self) -> None:
        try:
            while not self._ended.is_set():
                for record in self._consumer.poll(POLL_S):
                    due = int.from_bytes((record.value or b"")[:_MOMENT_BYTES], "big") / 1e9
                    self._read.add(time.perf_counter() - due)
        except Exception as error:  # noqa: BLE001 - the sending thread raises it
            self._reading_error = ErrorValue.of(error)

    def _wait_for(self, count: int) -> None:
        ends = time.perf_counter() + LATE_MAX_S
        while self._read.count < count and self._reading_error is None:
            if time.perf_counter() > ends:
                raise TimeoutError(
                    f"{count - self._read.count:,} of {count:,} records were not read within {LATE_MAX_S:g} s of the last"
                )
            time.sleep(0.01)


def _noting(histogram: LatencyHistogram, due: float) -> Callable[[Delivery], None]:
    def note(delivery: Delivery) -> None:
        if delivery.exception() is None:  # `flush` raises the error
            histogram.add(time.perf_counter() - due)

    return note
