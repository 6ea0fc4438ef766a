"""OpenTelemetry's metrics as clients push them: read as protobuf's own library writes them, and whatever a stranger sends."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from odradek.runtime.turns import in_one_go
from odradek.telemetry.otlp import (
    ATTRIBUTES_MAX,
    FIELDS_MAX,
    POINTS_MAX,
    TEXT_BYTES_MAX,
    OtlpPoint,
    PointKind,
    PushedMetrics,
    TelemetryFormatError,
    read_steps,
    written_metrics,
)

FIELD = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "string": FIELD.TYPE_STRING,
    "bool": FIELD.TYPE_BOOL,
    "int64": FIELD.TYPE_INT64,
    "int32": FIELD.TYPE_INT32,
    "double": FIELD.TYPE_DOUBLE,
    "fixed64": FIELD.TYPE_FIXED64,
    "sfixed64": FIELD.TYPE_SFIXED64,
}
MESSAGES = {
    "AnyValue": ["1 string string_value", "2 bool bool_value", "3 int64 int_value", "4 double double_value"],
    "KeyValue": ["1 string key", "2 AnyValue value"],
    "Resource": ["1 KeyValue* attributes"],
    "Point": [
        "7 KeyValue* attributes", "2 fixed64 start", "3 fixed64 time", "4 double as_double", "6 sfixed64 as_int"
    ],
    "Gauge": ["1 Point* data_points"],
    "Sum": ["1 Point* data_points", "2 int32 temporality", "3 bool is_monotonic"],
    "HistogramPoint": ["9 KeyValue* attributes", "4 fixed64 count", "5 double sum", "6 fixed64* bucket_counts"],
    "Histogram": ["1 HistogramPoint* data_points", "2 int32 temporality"],
    "Metric": ["1 string name", "2 string description", "5 Gauge gauge", "7 Sum sum", "9 Histogram histogram"],
    "ScopeMetrics": ["2 Metric* metrics"],
    "ResourceMetrics": ["1 Resource resource", "2 ScopeMetrics* scope_metrics"],
    "MetricsData": ["1 ResourceMetrics* resource_metrics"],
}  # fmt: skip
"""The messages of opentelemetry-proto, as far as clients use them."""


def protobuf_class(name: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="otlp.proto", package="otlp", syntax="proto3")
    for message_name, rows in MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for number, kind, field_name in (row.split() for row in rows):
            base = kind.rstrip("*")
            field = message.field.add(name=field_name, number=int(number))
            field.label = FIELD.LABEL_REPEATED if kind.endswith("*") else FIELD.LABEL_OPTIONAL
            field.type = SCALARS.get(base, FIELD.TYPE_MESSAGE)
            if base not in SCALARS:
                field.type_name = f".otlp.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"otlp.{name}"))


MetricsData = protobuf_class("MetricsData")
NAMES = st.text("abcz.", min_size=1, max_size=12)
LABELS = st.dictionaries(NAMES, st.text(max_size=8), max_size=4)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
POINTS = st.builds(
    OtlpPoint,
    name=NAMES,
    kind=st.sampled_from(PointKind),
    value=NUMBERS,
    attributes=LABELS.map(lambda pairs: tuple(sorted(pairs.items()))),
)


def read(payload: bytes) -> PushedMetrics:
    return in_one_go(read_steps(memoryview(payload)))


def metric(data: Any, name: str) -> Any:
    if not data.resource_metrics:
        data.resource_metrics.add().scope_metrics.add()
    added = data.resource_metrics[0].scope_metrics[0].metrics.add()
    added.name = name
    return added


@given(st.lists(POINTS, max_size=6), LABELS)
def test_what_is_written_is_read_by_protobuf_and_by_us(
    points: list[OtlpPoint], resource: dict[str, str]
) -> None:
    labels = tuple(sorted(resource.items()))
    payload = written_metrics(points, resource=labels, start_ns=1, now_ns=2)
    assert read(payload) == PushedMetrics(resource=labels, points=points)
    metrics = MetricsData.FromString(payload).resource_metrics[0].scope_metrics[0].metrics
    assert [written.name for written in metrics] == [point.name for point in points]
    values = [(written.gauge.data_points or written.sum.data_points)[0].as_double for written in metrics]
    assert values == [point.value for point in points]


@given(
    NAMES, st.integers(-(2**63), 2**63 - 1).filter(bool), st.sampled_from([0, 1, 2]), st.booleans(), LABELS
)
def test_sums_and_gauges_of_protobuf_are_read(
    name: str, value: int, temporality: int, is_monotonic: bool, labels: dict[str, str]
) -> None:
    data = MetricsData()
    summed = metric(data, name).sum
    point = summed.data_points.add(as_int=value, time=2)
    for key, text in labels.items():
        point.attributes.add(key=key).value.string_value = text
    summed.temporality, summed.is_monotonic = temporality, is_monotonic
    metric(data, name).gauge.data_points.add(as_double=0.5)
    attributes = tuple(sorted(labels.items()))
    kind = PointKind.COUNTER if is_monotonic else PointKind.GAUGE
    first, second = read(data.SerializeToString()).points
    assert first == OtlpPoint(
        name=name, kind=kind, value=value, is_delta=temporality == 1, attributes=attributes
    )
    assert second.value == 0.5
    assert second.kind is PointKind.GAUGE
    assert not second.is_delta


def test_a_histogram_has_its_count_and_sum_and_labels_of_other_types_are_text() -> None:
    data = MetricsData()
    histogram = metric(data, "latency").histogram
    histogram.temporality = 1
    point = histogram.data_points.add(count=3, sum=1.5, bucket_counts=[1, 2])
    point.attributes.add(key="flag").value.bool_value = True
    point.attributes.add(key="number").value.int_value = -7
    points = read(data.SerializeToString()).points
    assert [(point.name, point.value, point.is_delta) for point in points] == [
        ("latency.count", 3, True),
        ("latency.sum", 1.5, True),
    ]
    assert points[0].attributes == (("flag", "true"), ("number", "-7"))


def test_what_is_beyond_the_bounds_is_left_out_and_counted() -> None:
    data = MetricsData()
    metric(data, "n" * (TEXT_BYTES_MAX + 1)).gauge.data_points.add(as_double=1.0)
    metric(data, "nan").gauge.data_points.add(as_double=float("nan"))
    crowded = metric(data, "crowded").gauge.data_points.add(as_double=1.0)
    for number in range(ATTRIBUTES_MAX + 1):
        crowded.attributes.add(key=f"k{number}").value.string_value = "v"
    long = metric(data, "long").gauge.data_points.add(as_double=1.0)
    long.attributes.add(key="k").value.string_value = "v" * (TEXT_BYTES_MAX + 1)
    for _ in range(POINTS_MAX + 1):
        metric(data, "many").gauge.data_points.add(as_double=1.0)
    pushed = read(data.SerializeToString())
    assert {point.name for point in pushed.points} == {"many"}
    assert (len(pushed.points), pushed.left_out) == (POINTS_MAX, 5)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x0f",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\x07\x12\x05\x12\x03\x0a\x01\xff",
        b"\x08\x00" * (FIELDS_MAX + 1),
    ],
)
def test_what_is_malformed_or_too_much_is_refused(payload: bytes) -> None:
    with pytest.raises(TelemetryFormatError):
        read(payload)


@given(st.data(), st.lists(POINTS, min_size=1, max_size=4))
def test_damaged_payloads_are_read_or_refused_and_nothing_else(
    data: st.DataObject, points: list[OtlpPoint]
) -> None:
    payload = bytearray(written_metrics(points, resource=(("a", "b"),), start_ns=1, now_ns=2))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    del payload[data.draw(st.integers(0, len(payload))) :]
    try:
        pushed = read(bytes(payload))
    except TelemetryFormatError:
        return
    assert len(pushed.points) <= 2 * len(points)
