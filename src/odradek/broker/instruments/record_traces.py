"""The way of traced records through this broker, as spans: append, replicate, fetch (decision 0093).

Theory. A client writes the context of its span into a record's headers (`traceparent`). The broker stores the bytes as they
are, and never changes a header: all of its spans are children of the client's. Headers are looked at once, when a batch is
appended; which offsets were traced is remembered for a while, so a fetch looks at no record.

Bounds: `odradek.otlp.traced.records.per.second.max` limits the records, and the fetches of them, that become spans. Ten times
as many batches are looked at in a second, fewer where they are compressed or have many records; none that is larger than
`odradek.otlp.traced.batch.bytes.max`. A partition remembers `_OFFSETS_MAX` records, each for `_FETCHES_MAX` fetches. What was
left out is counted. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal
from weakref import WeakKeyDictionary

from odradek.config.server import OtlpConfig
from odradek.model.errors import KafkaError
from odradek.records import READ_LIMITS, BatchHeader, Codec, Limits, decode_batch
from odradek.records.content import records_of
from odradek.replication.partition import Partition
from odradek.runtime.ports import Runtime
from odradek.storage.log.results import AppendResult
from odradek.telemetry.metrics import Family, counter
from odradek.telemetry.spans import AttributeValue, FinishedSpan, RateLimit, SpanClock, SpanKind, SpanSink
from odradek.telemetry.trace_context import TRACEPARENT, TraceContext, context_in

_NEEDLE: Final = TRACEPARENT.encode()
_LOOKS_PER_RECORD: Final = 10
_EXPANDING_COSTS: Final = 10.0
"""The cost of expanding a batch, in searches of a plain one."""
_RECORDS_PER_LOOK: Final = 100
"""The number of records that are decoded in the time of a search."""
_OFFSETS_MAX: Final = 100
_FETCHES_MAX: Final = 20
_SPANS_PER_FETCH_MAX: Final = 100
_SPAN_ID_MASK: Final = (1 << 64) - 1


FetchedBy = Literal["consumer", "replica", "share"]


class TracedRecord:
    """A record that may be fetched."""

    __slots__ = ("appended_ns", "context", "fetches_left", "offset")

    def __init__(self, offset: int, context: TraceContext, appended_ns: int) -> None:
        self.offset: Final = offset
        self.context: Final = context
        self.appended_ns: Final = appended_ns
        self.fetches_left = _FETCHES_MAX


class RecordTraces:
    """Makes the spans of one broker."""

    def __init__(self, sink: SpanSink, runtime: Runtime, config: OtlpConfig, *, broker_id: int) -> None:
        clock = runtime.clock
        self._sink = sink
        self._entropy = runtime.entropy
        self._broker_id = broker_id
        self._clock: Final = SpanClock(clock.wall_ms, clock.monotonic)
        self._batch_bytes_max = config.traced_batch_bytes_max
        per_second = config.traced_records_per_second_max
        self._records = RateLimit(per_second, clock.monotonic)
        self._looks = RateLimit(per_second * _LOOKS_PER_RECORD, clock.monotonic)
        self._remembered: Final[WeakKeyDictionary[Partition, deque[TracedRecord]]] = WeakKeyDictionary()
        self.span_count = 0
        self.unseen_count = 0
        """Batches whose headers were not looked at."""
        self.left_out_count = 0
        """Traced records that became no spans."""

    # -- append

    def appended(
        self,
        partition: Partition,
        batches: list[tuple[BatchHeader, memoryview]],
        appended: AppendResult,
        *,
        began: float,
        client_id: str,
    ) -> None:
        """Makes spans for the traced records of batches that a client produced.

        `began`: the monotonic time when the request was served. The spans of replication follow when the records are below
        the high watermark.
        """
        if appended.duplicate:
            return
        for header, batch in batches:
            for index, context in self._contexts(header, batch):
                if not self._records.allow():
                    self.left_out_count += 1
                    continue
                self._trace(partition, appended.first_offset + index, context, began, client_id)

    def _contexts(self, header: BatchHeader, batch: memoryview) -> Iterator[tuple[int, TraceContext]]:
        """Yields position and context of the records that are traced and sampled."""
        cost = 1.0 if header.codec is Codec.NONE else _EXPANDING_COSTS
        if header.size_bytes > self._batch_bytes_max or not self._looks.allow(cost):
            self.unseen_count += 1
            return
        limits = Limits(decompressed_bytes_max=self._batch_bytes_max)
        try:
            records = records_of(batch, header, limits)
            if _NEEDLE not in bytes(records):
                return
            if not self._looks.allow(header.record_count / _RECORDS_PER_LOOK):
                self.unseen_count += 1
                return
            decoded = decode_batch(batch, limits=READ_LIMITS if header.codec is Codec.NONE else limits)
        except KafkaError:  # the batch was checked before: it expands beyond the bound
            self.unseen_count += 1
            return
        first_offset = decoded[0].offset if decoded else 0
        for record in decoded:
            context = context_in(record.headers) if record.headers else None
            if context is not None and context.is_sampled:
                yield record.offset - first_offset, context

    def _trace(
        self, partition: Partition, offset: int, context: TraceContext, began: float, client_id: str
    ) -> None:
        now_ns = self._clock.now_ns()
        attributes = self._attributes(partition, offset, client_id)
        append = self._child(context)
        self._add(
            FinishedSpan(
                name=f"append {partition.name.topic}",
                kind=SpanKind.SERVER,
                context=append,
                parent=context,
                start_ns=min(self._clock.at_ns(began), now_ns),
                end_ns=now_ns,
                attributes=attributes,
            )
        )
        self._remember(partition, TracedRecord(offset, context, now_ns))
        settle = partial(self._replicated, partition.name.topic, append, attributes, now_ns)
        future = partition.leader().acknowledgement(offset)
        if future is None:
            settle(None)
        else:
            future.add_done_callback(settle)

    def _replicated(
        self,
        topic: str,
        parent: TraceContext,
        attributes: dict[str, AttributeValue],
        start_ns: int,
        future: asyncio.Future[None] | None,
    ) -> None:
        error = None
        if future is not None:
            if future.cancelled():
                error = "the request was given up before the record was on all in-sync replicas"
            elif (failure := future.exception()) is not None:
                error = str(failure)
        self._add(
            FinishedSpan(
                name=f"replicate {topic}",
                kind=SpanKind.INTERNAL,
                context=self._child(parent),
                parent=parent,
                start_ns=start_ns,
                end_ns=self._clock.now_ns(),
                attributes=attributes,
                error=error,
            )
        )

    def _remember(self, partition: Partition, traced: TracedRecord) -> None:
        records = self._remembered.get(partition)
        if records is None:
            records = self._remembered[partition] = deque(maxlen=_OFFSETS_MAX)
        records.append(traced)

    # -- fetch

    def remembers(self, partition: Partition) -> bool:
        """Tells whether a record of the partition was traced."""
        return partition in self._remembered

    @property
    def partition_count(self) -> int:
        """The partitions with traced records."""
        return len(self._remembered)

    def fetched(
        self,
        partition: Partition,
        ranges: Sequence[tuple[int, int]],
        *,
        began: float,
        client_id: str,
        by: FetchedBy,
    ) -> None:
        """Makes spans for the traced records that an answer holds.

        `ranges`: first offset and the one after the last, ascending. `by`: the kind of client that fetched.
        `began`: monotonic, when the fetch arrived. A fetch that waited begins for a record when that is appended.
        """
        records = self._remembered.get(partition)
        if records is None:
            return
        now_ns = self._clock.now_ns()
        began_ns = self._clock.at_ns(began)
        count = 0
        for traced in records:
            if not _is_within(ranges, traced.offset) or count >= _SPANS_PER_FETCH_MAX:
                continue
            if traced.fetches_left == 0 or not self._records.allow():
                self.left_out_count += 1
                continue
            traced.fetches_left -= 1
            count += 1
            attributes = self._attributes(partition, traced.offset, client_id)
            attributes["odradek.fetch.by"] = by
            self._add(
                FinishedSpan(
                    name=f"fetch {partition.name.topic}",
                    kind=SpanKind.SERVER,
                    context=self._child(traced.context),
                    parent=traced.context,
                    start_ns=min(max(began_ns, traced.appended_ns), now_ns),
                    end_ns=now_ns,
                    attributes=attributes,
                )
            )

    # -- both

    def _add(self, span: FinishedSpan) -> None:
        self.span_count += 1
        self._sink.add(span)

    def _child(self, parent: TraceContext) -> TraceContext:
        span_id = self._entropy.uuid().int & _SPAN_ID_MASK
        return TraceContext(trace_id=parent.trace_id, span_id=span_id or 1, is_sampled=True)

    def _attributes(self, partition: Partition, offset: int, client_id: str) -> dict[str, AttributeValue]:
        """Returns the attributes by OpenTelemetry's names for messaging."""
        return {
            "messaging.system": "kafka",
            "messaging.destination.name": partition.name.topic,
            "messaging.destination.partition.id": str(partition.name.partition),
            "messaging.kafka.offset": offset,
            "messaging.client.id": client_id,
            "odradek.broker.id": self._broker_id,
        }

    def families(self) -> list[Family]:
        """Returns the counts of what was traced and what was left out."""
        families = []
        for name, meaning, value in (
            ("odradek_trace_spans", "Spans of traced records that were made.", self.span_count),
            ("odradek_trace_batches_unseen", "Batches whose headers were not looked at.", self.unseen_count),
            ("odradek_trace_records_left_out", "Traced records beyond the bounds.", self.left_out_count),
        ):
            family = counter(name, meaning)
            family.add(value)
            families.append(family)
        return families


def _is_within(ranges: Sequence[tuple[int, int]], offset: int) -> bool:
    at = bisect_right(ranges, offset, key=_first) - 1
    return at >= 0 and offset < ranges[at][1]


def _first(offsets: tuple[int, int]) -> int:
    return offsets[0]
