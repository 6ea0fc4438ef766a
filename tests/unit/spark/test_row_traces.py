"""Spans of rows that a sink writes: their parents, and the headers of the records that are written."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

import pyarrow as pa

from odradek.model.errors import ConfigError
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import write_options
from odradek.spark.writing.outgoing import Marks
from odradek.spark.writing.row_traces import ROWS_MAX, RowTraces
from odradek.telemetry.spans import FinishedSpan
from odradek.telemetry.trace_context import TraceContext, parsed

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))
ENDPOINT = "http://127.0.0.1:4318"
Pairs = list[tuple[str, bytes | None]]


class SpanList:
    def __init__(self) -> None:
        self.spans: list[FinishedSpan] = []
        self.is_closed = False

    def add(self, span: FinishedSpan) -> None:
        self.spans.append(span)

    def close(self) -> None:
        self.is_closed = True


def context(number: int, *, is_sampled: bool = True) -> TraceContext:
    return TraceContext(trace_id=1_000 + number, span_id=2_000 + number, is_sampled=is_sampled)


def rows_of(*headers: Pairs | None) -> pa.RecordBatch:
    pairs = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in headers]
    return pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v"] * len(pairs), pa.binary()), "headers": pa.array(pairs, HEADERS)}
    )


def headers_in(rows: pa.RecordBatch) -> list[Pairs]:
    return [[(pair["key"], pair["value"]) for pair in row or []] for row in rows["headers"].to_pylist()]


def test_a_traced_row_goes_on_with_the_context_of_its_sink() -> None:
    sink = SpanList()
    marks = Marks(query="q", batch=7, partition=2)
    traces = RowTraces(ENDPOINT, marks, open_sink=lambda endpoint: sink)
    before = rows_of([("a", b"1")], None, [("b", None), ("traceparent", context(1).header), ("c", b"3")], [])
    with traces:
        after = traces.traced("out", before)
    batch, written = sink.spans
    assert (batch.name, written.name) == ("batch out", "sink out")
    assert batch.parent == context(1)
    assert written.parent == batch.context
    assert batch.start_ns <= written.start_ns <= written.end_ns
    assert batch.attributes["odradek.spark.batch"] == 7
    assert headers_in(after) == [
        [("a", b"1")],
        [],
        [("b", None), ("traceparent", written.context.header), ("c", b"3")],
        [],
    ]
    assert after.schema == before.schema
    assert sink.is_closed


def test_a_slice_of_rows_is_read_where_it_is() -> None:
    sink = SpanList()
    traces = RowTraces(ENDPOINT, open_sink=lambda endpoint: sink)
    rows = rows_of([("x", b"0")], [("traceparent", context(1).header)], [("y", b"1")]).slice(1, 2)
    with traces:
        after = traces.traced("out", rows)
    assert parsed(headers_in(after)[0][0][1]) == sink.spans[1].context
    assert headers_in(after)[1] == [("y", b"1")]


@pytest.mark.parametrize(
    "headers",
    [
        [("traceparent", context(1, is_sampled=False).header)],
        [("traceparent", b"00-nothing")],
        [("traceparent", None)],
        [("Traceparent", context(1).header)],
    ],
)
def test_other_rows_stay_as_they_are_and_open_no_exporter(headers: Pairs) -> None:
    def refuse(endpoint: str) -> SpanList:
        raise AssertionError("no span, no exporter")

    rows = rows_of(headers)
    with RowTraces(ENDPOINT, open_sink=refuse) as traces:
        assert traces.traced("out", rows) is rows
    with RowTraces(None, open_sink=refuse) as traces:
        assert traces.traced("out", rows_of([("traceparent", context(1).header)])).num_rows == 1


def test_a_task_makes_a_bounded_number_of_spans() -> None:
    sink = SpanList()
    rows = rows_of(*[[("traceparent", context(number).header)] for number in range(ROWS_MAX + 50)])
    with RowTraces(ENDPOINT, open_sink=lambda endpoint: sink) as traces:
        after = traces.traced("out", rows)
        assert traces.traced("out", rows) is rows
    assert len(sink.spans) == 2 * ROWS_MAX
    assert headers_in(after)[ROWS_MAX:] == headers_in(rows)[ROWS_MAX:]


def test_a_task_that_fails_says_so_in_its_spans() -> None:
    sink = SpanList()
    traces = RowTraces(ENDPOINT, open_sink=lambda _: sink)
    traces.traced("out", rows_of([("traceparent", context(1).header)]))
    traces.__exit__(ValueError, ValueError("it fails"), None)
    assert [span.error for span in sink.spans] == ["ValueError: it fails"] * 2


def test_an_endpoint_is_checked_with_the_other_options() -> None:
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
    for wrong in ("127.0.0.1:4318", "http://", "https://user:word@127.0.0.1:4318"):
        with pytest.raises(ConfigError, match="tracingEndpoint is not allowed"):
            write_options({**given, "tracingEndpoint": wrong}, Use.BATCH_WRITE)
    assert write_options({**given, "tracingEndpoint": ENDPOINT}, Use.BATCH_WRITE).tracing_endpoint == ENDPOINT
