"""One trace through a query: the source hands headers on, and the sink makes spans of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")
pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is absent")

from tests.otlp_collector import OtlpCollector

from odradek import Consumer, TopicPartition
from odradek.telemetry.trace_context import TraceContext, parsed

SENT = TraceContext(trace_id=0xABC, span_id=0xDEF, is_sampled=True)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_trace_goes_on_behind_a_query(
    servers: str,
    new_topic: Callable[..., Any],
    read_stream: Any,
    tmp_path: Path,
    run_to_end: Callable[[Any], None],
    delivery: str,
) -> None:
    source, output = new_topic(), new_topic()
    source.send(b"traced", headers={"traceparent": SENT.header})
    source.send(b"other")
    rows = read_stream(source, includeHeaders="true").select("value", "headers")
    with OtlpCollector() as collector:
        writer = rows.writeStream.format("odradek").queryName("traced").trigger(availableNow=True)
        writer = writer.option("kafka.bootstrap.servers", servers).option("topic", output.name)
        writer = writer.option("delivery", delivery).option("tracingEndpoint", collector.endpoint)
        run_to_end(writer.option("checkpointLocation", str(tmp_path)).start())
        spans = collector.wait_for_spans(f"batch {output.name}", f"sink {output.name}")
    batch, sink = spans[f"batch {output.name}"], spans[f"sink {output.name}"]
    assert batch.trace_id == sink.trace_id == f"{SENT.trace_id:032x}"
    assert batch.parent_id == f"{SENT.span_id:016x}"
    assert sink.parent_id == batch.span_id
    assert sink.service == "odradek-spark"
    with Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(output.name, 0)])
        records = {record.value: record for record in consumer.poll(20)}
    context = parsed(dict(records[b"traced"].headers)["traceparent"])
    assert context is not None
    assert f"{context.span_id:016x}" == sink.span_id
    assert "traceparent" not in dict(records[b"other"].headers)
