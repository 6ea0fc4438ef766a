"""The records of small batches, fetched once for all queries of a process that read them.

A batch of few records costs more to hand to a worker of Spark's than to read. Where one process plans the batches of all
queries, it reads such a batch itself, and fifty queries that read the same records fetch them once. What is not simple is left
to a worker: a range that is large, or not all there, or whose topic has no id, and any error, which the worker then reports.
A topic whose records do not come in time is left to workers for a while: each batch would wait here first, for nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.model.errors import OdradekError
from odradek.model.ids import ZERO_UUID, TopicPartition
from odradek.model.lazy import lazy
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock
from odradek.spark.options.options import Projection, ReadOptions
from odradek.spark.reading.offsets import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.spark.reading import fetch
else:
    pa = lazy("pyarrow")
    fetch = lazy("odradek.spark.reading.fetch")

log: Final = logging.getLogger("odradek.spark")

RECORDS_MAX: Final = 500
"""The most records of a batch that is fetched here. A worker decodes larger ones, in parallel with other workers."""
BATCH_BYTES_MAX: Final = 256 << 10
"""The most memory of a batch that is fetched here: the JVM keeps its rows until the next batch."""
DECODED_BYTES_MAX: Final = 32 << 10
"""The most bytes that are decoded by a format where queries are planned: 256 KB of JSON can take a second, and become 13 MB."""
HELD_BYTES_MAX: Final = 4 << 20
"""The most memory of all batches that are held for other queries."""
HELD_S: Final = 10.0
"""How long a batch is held: queries that wake for one record plan their batches within seconds."""
LEFT_S: Final = 30.0
"""How long batches of a topic are left to workers after one that was too large, or that did not come in time."""
PATIENCE_S: Final = 1.0
"""How long a batch waits for its records here, before a worker waits for them."""
FETCHES_MAX: Final = 4
"""The most fetches at the same time: each has a consumer."""

Fetched: TypeAlias = "tuple[tuple[TopicPartition, pa.RecordBatch], ...]"
Fetch: TypeAlias = (
    "Callable[[Sequence[OffsetRange], ReadOptions], Generator[tuple[TopicPartition, pa.RecordBatch]]]"
)
_Client: TypeAlias = frozenset[tuple[str, str]]


class BatchTooLargeError(OdradekError):
    """The records of a batch take more memory than one that is fetched here may."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a batch reads, and the settings of the client that reads it: its cluster, its login, its isolation level."""

    client: _Client = field(repr=False)
    extents: tuple[tuple[OffsetRange, str], ...]
    """Each range with the id of its topic, by which ranges are not compared."""


@dataclass(slots=True)
class _Held:
    fetched_at: float
    records: Future[Fetched | None] = field(default_factory=Future)
    byte_count: int = 0


class SharedFetches:
    """Small batches, by what they read. For any thread."""

    def __init__(self, fetch_ranges: Fetch, clock: Clock) -> None:
        self._fetch: Final = fetch_ranges
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._fetches: Final = threading.BoundedSemaphore(FETCHES_MAX)
        self._held: Final[dict[_Batch, _Held]] = {}
        """The oldest first."""
        self._left: Final[dict[tuple[_Client, str], float]] = {}
        """The time from which on batches of a topic are left to workers."""

    def records(self, extents: Sequence[OffsetRange], options: ReadOptions) -> Fetched | None:
        """Returns the records of the ranges, in order of offsets in each partition, or None: a worker must read them."""
        client = frozenset(options.client.items())
        if not self._is_small(extents, client):
            return None
        batch = _Batch(client, tuple((extent, str(extent.topic_id)) for extent in extents))
        with self._lock:
            held = self._held.get(batch)
            is_first = held is None
            if held is None:
                held = self._held[batch] = _Held(self._clock.monotonic())
        if is_first:
            self._fetch_for_all(batch, held, extents, options)
        try:
            return held.records.result(PATIENCE_S)
        except TimeoutError:
            return None

    @property
    def held_bytes(self) -> int:
        """The memory of the batches that are held."""
        with self._lock:
            return sum(held.byte_count for held in self._held.values())

    def _is_small(self, extents: Sequence[OffsetRange], client: _Client) -> bool:
        if not extents or sum(extent.size for extent in extents) > RECORDS_MAX:
            return False
        if any(extent.topic_id == ZERO_UUID for extent in extents):
            return False  # nothing tells apart two topics of one name
        with self._lock:
            self._release_old()
            return not any((client, extent.partition.topic) in self._left for extent in extents)

    def _fetch_for_all(
        self, batch: _Batch, held: _Held, extents: Sequence[OffsetRange], options: ReadOptions
    ) -> None:
        """Settles what is held with the records, or with None after any error: the worker that reads the batch then meets it,
        and reports it.
        """
        records = None
        began_at = self._clock.monotonic()
        try:
            records = self._fetched_in_turn(extents, options)
        except BatchTooLargeError as error:
            log.debug("a worker reads it: %s", error)
            self._leave_to_workers(batch)
        except (OdradekError, OSError, pa.ArrowException) as error:
            log.debug("a worker reads what could not be fetched at once: %s", error)
            if self._clock.monotonic() - began_at >= PATIENCE_S:
                self._leave_to_workers(batch)
        finally:
            self._settle(batch, held, records)

    def _fetched_in_turn(self, extents: Sequence[OffsetRange], options: ReadOptions) -> Fetched | None:
        if not self._fetches.acquire(timeout=PATIENCE_S):
            return None
        try:
            strict = replace(
                options,
                client={"max.partition.fetch.bytes": str(BATCH_BYTES_MAX), **options.client},
                fail_on_data_loss=True,
                poll_timeout_ms=int(PATIENCE_S * 1_000),
            )
            records, byte_count = [], 0
            with closing(self._fetch(extents, strict)) as fetching:
                for partition, rows in fetching:
                    byte_count += rows.get_total_buffer_size()
                    if byte_count > BATCH_BYTES_MAX:
                        raise BatchTooLargeError(f"{partition}: a batch of {byte_count} bytes and more")
                    records.append((partition, rows))
            return tuple(records)
        finally:
            self._fetches.release()

    def _settle(self, batch: _Batch, held: _Held, records: Fetched | None) -> None:
        with self._lock:
            if records is None:
                if self._held.get(batch) is held:
                    del self._held[batch]
            else:
                held.byte_count = sum(rows.get_total_buffer_size() for _, rows in records)
                self._release_surplus()
        held.records.set_result(records)

    def _release_surplus(self) -> None:
        held_bytes = sum(held.byte_count for held in self._held.values())
        for oldest in list(self._held):
            if held_bytes <= HELD_BYTES_MAX:
                break
            held_bytes -= self._held.pop(oldest).byte_count

    def _leave_to_workers(self, batch: _Batch) -> None:
        now = self._clock.monotonic()
        with self._lock:
            for extent, _ in batch.extents:
                self._left[batch.client, extent.partition.topic] = now

    def _release_old(self) -> None:
        now = self._clock.monotonic()
        for batch in [batch for batch, held in self._held.items() if now - held.fetched_at > HELD_S]:
            del self._held[batch]
        for topic in [topic for topic, left_at in self._left.items() if now - left_at > LEFT_S]:
            del self._left[topic]


_OF_PROCESS: Final[list[SharedFetches]] = []
_making: Final = threading.Lock()


def are_costly(records: Fetched, projection: Projection) -> bool:
    """Tells whether a worker must decode these records, because decoding here would hold up the queries that are planned."""
    if projection.key_format is None and projection.value_format is None:
        return False
    total: int = sum(rows.nbytes for _, rows in records)
    return total > DECODED_BYTES_MAX


def fetches_of_process() -> SharedFetches:
    """Returns the fetches that all queries of this process share."""
    with _making:
        if not _OF_PROCESS:
            _OF_PROCESS.append(SharedFetches(fetch.fetched, SystemClock()))
        return _OF_PROCESS[0]
