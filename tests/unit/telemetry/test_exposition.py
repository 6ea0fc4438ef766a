"""The text of metrics, as the library of the Prometheus project reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from odradek.telemetry.exposition import OPEN_METRICS, TEXT, chosen_type, written
from odradek.telemetry.metrics import Family, Histogram, MetricKind, counter, gauge, histogram, labels

PARSERS: dict[str, Any] = {TEXT: prometheus_text, OPEN_METRICS: open_metrics}
NUMBERS = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False)
VALUES = st.dictionaries(st.sampled_from(["topic", "group", "request"]), st.text(max_size=20), max_size=3)


@pytest.mark.parametrize("content_type", [TEXT, OPEN_METRICS])
@given(
    st.lists(
        st.tuples(VALUES, NUMBERS), min_size=1, max_size=5, unique_by=lambda row: str(sorted(row[0].items()))
    )
)
def test_any_gauge_is_read_as_it_was_written(
    content_type: str, rows: list[tuple[dict[str, str], float]]
) -> None:
    family = gauge("odradek_any", 'With "quotes", a \\ and\na line.')
    for texts, value in rows:
        family.add(value, labels(**texts))

    (parsed,) = PARSERS[content_type](written([family], content_type).decode())

    assert parsed.type == "gauge"
    shown = [(sample.labels, float(sample.value)) for sample in parsed.samples]
    assert shown == [
        ({name: text.encode("utf-8", "replace").decode() for name, text in texts.items()}, float(value))
        for texts, value in rows
    ]


@pytest.mark.parametrize("content_type", [TEXT, OPEN_METRICS])
@given(st.lists(st.floats(0, 100), max_size=20))
def test_a_histogram_is_cumulative_and_ends_with_all(content_type: str, values: list[float]) -> None:
    filled = Histogram()
    for value in values:
        filled.add(value)
    family = histogram("odradek_seconds", "Seconds.")
    family.add(filled, labels(request="Produce"))

    (parsed,) = PARSERS[content_type](written([family], content_type).decode())

    buckets = {float(sample.labels["le"]): sample.value for sample in parsed.samples if "le" in sample.labels}
    assert buckets == {bound: sum(value <= bound for value in values) for bound in (*filled.bounds, math.inf)}
    by_name = {sample.name: sample.value for sample in parsed.samples if "le" not in sample.labels}
    assert by_name == {
        "odradek_seconds_count": len(values),
        "odradek_seconds_sum": pytest.approx(sum(values)),
    }


@pytest.mark.parametrize("content_type", [TEXT, OPEN_METRICS])
def test_a_counter_ends_with_total_and_numbers_that_are_none_are_written(content_type: str) -> None:
    count = counter("kafka_server_brokertopicmetrics_messagesin", "Records.")
    count.add(3, labels(topic="t"))
    odd = gauge("odradek_odd", "Odd.")
    for name, value in (("a", math.inf), ("b", -math.inf), ("c", math.nan)):
        odd.add(value, labels(name=name))

    first, second = PARSERS[content_type](written([count, odd], content_type).decode())

    assert (first.type, first.samples[0].name) == (
        "counter",
        "kafka_server_brokertopicmetrics_messagesin_total",
    )
    shown = [sample.value for sample in second.samples]
    assert shown[:2] == [math.inf, -math.inf]
    assert math.isnan(shown[2])


def test_a_family_without_samples_is_left_out() -> None:
    assert written([Family(name="odradek_none", kind=MetricKind.GAUGE, meaning="None.")]) == b""
    assert written([], OPEN_METRICS) == b"# EOF\n"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", TEXT),
        ("*/*", TEXT),
        ("text/plain", TEXT),
        ("application/openmetrics-text; version=1.0.0", OPEN_METRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.7", TEXT),
        (
            "application/openmetrics-text;version=1.0.0;q=0.7,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            OPEN_METRICS,
        ),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=many", TEXT),
        (",;,;q=", TEXT),
    ],
)
def test_the_format_follows_the_accept_header(accept: str, expected: str) -> None:
    assert chosen_type(accept) == expected
