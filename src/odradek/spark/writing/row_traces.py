"""The way of traced rows through a sink, as spans: `batch` and `sink` (decision 0093).

A row is traced if its column `headers` has a sampled `traceparent`. The record that is written gets the context of its sink
span in place of it, so that the next consumer continues the trace. A task makes spans for `ROWS_MAX` rows at most; others keep
their headers as they are. A task without a traced row imports no exporter and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from odradek.model.lazy import lazy
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real import SystemClock, SystemEntropy
from odradek.spark.writing.outgoing import Marks
from odradek.telemetry.spans import AttributeValue, FinishedSpan, SpanClock, SpanKind
from odradek.telemetry.trace_context import TRACEPARENT, TraceContext, parsed

if TYPE_CHECKING:
    from odradek.telemetry import opentelemetry_export
else:
    opentelemetry_export = lazy("odradek.telemetry.opentelemetry_export")

ROWS_MAX: Final = 100
_SPAN_ID_MASK: Final = (1 << 64) - 1
_ERROR_CHARS_MAX: Final = 500


class ClosableSink(Protocol):
    """A sink of spans that sends what waits when it is closed."""

    def add(self, span: FinishedSpan) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _TracedRow:
    topic: str
    parent: TraceContext
    batch: TraceContext
    sink: TraceContext
    began_ns: int


class RowTraces:
    """The spans of one task: a context manager that is left when all rows are acknowledged, or with what failed."""

    def __init__(
        self,
        endpoint: str | None,
        marks: Marks | None = None,
        *,
        open_sink: Callable[[str], ClosableSink] | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        """`endpoint`: the collector; None: nothing is traced. `marks`: the task's query and batch, where they are known."""
        self._endpoint = endpoint
        self._marks = marks
        self._open_sink = open_sink or _opened
        clock = clock or SystemClock()
        self._clock = SpanClock(clock.wall_ms, clock.monotonic)
        self._entropy = entropy or SystemEntropy()
        self._began_ns = self._clock.now_ns()
        self._rows: list[_TracedRow] = []

    def traced(self, topic: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows for the producer, whose traced ones have the contexts of their sink spans."""
        if self._endpoint is None or len(self._rows) >= ROWS_MAX or "headers" not in rows.schema.names:
            return rows
        headers = rows["headers"]
        pairs = pc.list_flatten(headers)
        is_context = pc.fill_null(pc.equal(pc.struct_field(pairs, "key"), TRACEPARENT), False)
        indexes = pc.indices_nonzero(is_context).slice(0, ROWS_MAX - len(self._rows))
        if not len(indexes):
            return rows
        values = pc.struct_field(pairs, "value").to_pylist()
        changed = False
        for index in indexes.to_pylist():
            context = parsed(values[index])
            if context is not None and context.is_sampled:
                values[index] = self._begin(topic, context).header
                changed = True
        if not changed:
            return rows
        kind = headers.type.value_type
        structs = pa.StructArray.from_arrays(
            [pc.struct_field(pairs, "key"), pa.array(values, pa.binary())],
            fields=[kind.field(0), kind.field(1)],
        )
        lengths = pc.fill_null(pc.list_value_length(headers), 0)
        ends = pc.cumulative_sum(lengths.cast(pa.int32()))
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        column = rows.schema.get_field_index("headers")
        return rows.set_column(
            column, rows.schema.field(column), pa.ListArray.from_arrays(offsets, structs, type=headers.type)
        )

    def _begin(self, topic: str, parent: TraceContext) -> TraceContext:
        row = _TracedRow(
            topic=topic,
            parent=parent,
            batch=self._child(parent),
            sink=self._child(parent),
            began_ns=self._clock.now_ns(),
        )
        self._rows.append(row)
        return row.sink

    def _child(self, parent: TraceContext) -> TraceContext:
        span_id = self._entropy.uuid().int & _SPAN_ID_MASK
        return TraceContext(trace_id=parent.trace_id, span_id=span_id or 1, is_sampled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._rows or self._endpoint is None:
            return
        reason = None if error is None else f"{type(error).__name__}: {error}"[:_ERROR_CHARS_MAX]
        sink = self._open_sink(self._endpoint)
        now_ns = self._clock.now_ns()
        for row in self._rows:
            for name, context, parent, began_ns in (
                ("batch", row.batch, row.parent, self._began_ns),
                ("sink", row.sink, row.batch, row.began_ns),
            ):
                sink.add(
                    FinishedSpan(
                        name=f"{name} {row.topic}",
                        kind=SpanKind.PRODUCER if name == "sink" else SpanKind.CONSUMER,
                        context=context,
                        parent=parent,
                        start_ns=began_ns,
                        end_ns=now_ns,
                        attributes=self._attributes(row.topic),
                        error=reason,
                    )
                )
        sink.close()

    def _attributes(self, topic: str) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "kafka",
            "messaging.destination.name": topic,
        }
        if self._marks is not None:
            attributes["odradek.spark.query"] = self._marks.query
            attributes["odradek.spark.batch"] = self._marks.batch
            attributes["odradek.spark.partition"] = self._marks.partition
        return attributes


def _opened(endpoint: str) -> ClosableSink:
    origin = opentelemetry_export.ExportOrigin(
        service="odradek-spark", instance=SystemEntropy().uuid().hex, attributes={}
    )
    return opentelemetry_export.OtlpSpans(endpoint, origin)
