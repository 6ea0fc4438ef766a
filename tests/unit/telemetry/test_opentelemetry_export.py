"""Spans and families as a collector gets them: decoded with OpenTelemetry's own messages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="OpenTelemetry is absent")

from tests.otlp_collector import OtlpCollector

from odradek.telemetry.metrics import Histogram, counter, gauge, histogram, label_pairs, labels
from odradek.telemetry.opentelemetry_export import ExportOrigin, OtlpMetrics, OtlpSpans
from odradek.telemetry.spans import FinishedSpan, SpanKind
from odradek.telemetry.trace_context import TraceContext

ORIGIN = ExportOrigin(service="odradek-broker", instance="7", attributes={"odradek.broker.id": 7})
PARENT = TraceContext(trace_id=5, span_id=6, is_sampled=True)
CHILD = TraceContext(trace_id=5, span_id=8, is_sampled=True)


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    with OtlpCollector() as collector:
        yield collector


def test_a_span_keeps_its_ids_times_and_reason(collector: OtlpCollector) -> None:
    spans = OtlpSpans(collector.endpoint, ORIGIN)
    spans.add(
        FinishedSpan(
            name="append t",
            kind=SpanKind.SERVER,
            context=CHILD,
            parent=PARENT,
            start_ns=1_000,
            end_ns=2_000,
            attributes={"messaging.kafka.offset": 3},
            error="it failed",
        )
    )
    spans.close()

    (span,) = collector.spans()
    assert (span.trace_id, span.span_id, span.parent_id) == (f"{5:032x}", f"{8:016x}", f"{6:016x}")
    assert (span.start_ns, span.end_ns) == (1_000, 2_000)
    assert span.attributes == {"messaging.kafka.offset": 3}
    assert span.is_error
    assert span.error == "it failed"
    assert span.service == "odradek-broker"


def test_families_become_sums_gauges_and_histograms(collector: OtlpCollector) -> None:
    requests = counter("requests", "Requests.")
    requests.add(4, labels(request="Fetch", client='a"b\\c\nd'))
    size = gauge("size", "A size.")
    size.add(1.5)
    times = Histogram((0.5, 1.0))
    for seconds in (0.1, 0.7, 9.0):
        times.add(seconds)
    family = histogram("times", "Times.")
    family.add(times)

    metrics = OtlpMetrics(collector.endpoint, ORIGIN, start_ns=10)
    assert metrics.export([requests, size, family, gauge("empty", "Nothing.")], 20)
    metrics.close()

    sent = collector.metrics()
    assert set(sent) == {"requests_total", "size", "times"}
    (point,) = sent["requests_total"].sum.data_points
    assert sent["requests_total"].sum.is_monotonic
    assert {pair.key: pair.value.string_value for pair in point.attributes} == {
        "request": "Fetch",
        "client": 'a"b\\c\nd',
    }
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (4, 10, 20)
    assert sent["size"].gauge.data_points[0].as_double == 1.5
    (distribution,) = sent["times"].histogram.data_points
    assert list(distribution.bucket_counts) == [1, 1, 1]
    assert list(distribution.explicit_bounds) == [0.5, 1.0]
    assert distribution.count == 3


def test_a_collector_that_refuses_is_an_answer_and_no_error(collector: OtlpCollector) -> None:
    collector.status = 400
    metrics = OtlpMetrics(collector.endpoint, ORIGIN, start_ns=10)
    family = gauge("size", "A size.")
    family.add(1)
    assert not metrics.export([family], 20)
    metrics.close()


@pytest.mark.parametrize("value", ["", "plain", 'a"b', "a\\", "a\\n", "a\nb", '",x="y', "é\\\\"])
def test_labels_are_read_back(value: str) -> None:
    assert label_pairs(labels(first=value, second="2")) == {"first": value, "second": "2"}
