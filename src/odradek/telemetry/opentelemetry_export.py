"""Sends spans and metrics to an OpenTelemetry collector: OTLP over HTTP, by OpenTelemetry's own exporters (`odradek[otel]`).

Spans wait in the SDK's queue, which is bounded and drops what is too much; its thread sends them.
`OtlpMetrics.export` blocks until the collector has answered: call it on a thread that may wait. The endpoint
is the collector's base address; headers, certificates, compression and timeouts come from OpenTelemetry's
environment variables (`OTEL_EXPORTER_OTLP_HEADERS`, …).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError
from odradek.model.version import __version__
from odradek.telemetry.metrics import Family, Histogram, MetricKind, label_pairs
from odradek.telemetry.spans import FinishedSpan, SpanKind
from odradek.telemetry.trace_context import TraceContext

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import export as sdk_metrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace.status import Status, StatusCode
except ImportError as missing:
    raise ConfigError(f"OpenTelemetry needs more ({missing}): pip install 'odradek[otel]'") from None

_QUEUE_SPANS_MAX: Final = 4_096
_SCHEDULE_MS: Final = 1_000
_CLOSE_S: Final = 3.0
_POINTS_PER_REQUEST_MAX: Final = 5_000
_KINDS: Final = {
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CONSUMER: trace.SpanKind.CONSUMER,
    SpanKind.PRODUCER: trace.SpanKind.PRODUCER,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOrigin:
    """The process that spans and metrics come from, as a collector shows it."""

    service: str
    """`service.name`, unless OTEL_SERVICE_NAME says another one."""
    instance: str
    """`service.instance.id`: unique among the processes of the service."""
    attributes: Mapping[str, str | int]

    def resource(self) -> Resource:
        own: dict[str, str | int] = {
            "service.instance.id": self.instance,
            "service.version": __version__,
            **self.attributes,
        }
        resource = Resource.create(own)  # with OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": self.service}))
        return resource


class OtlpSpans:
    """A `SpanSink` that sends to `endpoint`."""

    def __init__(self, endpoint: str, origin: ExportOrigin) -> None:
        self._resource = origin.resource()
        self._scope = InstrumentationScope("odradek", __version__)
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=_url(endpoint, "traces")),
            max_queue_size=_QUEUE_SPANS_MAX,
            schedule_delay_millis=_SCHEDULE_MS,
        )

    def add(self, span: FinishedSpan) -> None:
        status = Status() if span.error is None else Status(StatusCode.ERROR, span.error)
        self._processor.on_end(
            ReadableSpan(
                name=span.name,
                context=_sdk_context(span.context, is_remote=False),
                parent=_sdk_context(span.parent, is_remote=True),
                resource=self._resource,
                attributes=span.attributes,
                kind=_KINDS[span.kind],
                status=status,
                start_time=span.start_ns,
                end_time=span.end_ns,
                instrumentation_scope=self._scope,
            )
        )

    def flush(self, timeout_s: float) -> bool:
        """Sends what waits. Blocks; returns whether all of it was sent in time."""
        return bool(self._processor.force_flush(int(timeout_s * 1_000)))

    def close(self) -> None:
        """Sends what waits, for `_CLOSE_S` seconds at most. Blocks."""
        _within(_CLOSE_S, self._processor.shutdown)


class OtlpMetrics:
    """Sends families to `endpoint`."""

    def __init__(self, endpoint: str, origin: ExportOrigin, *, start_ns: int) -> None:
        """`start_ns`: the time since which counters count."""
        self._resource = origin.resource()
        self._scope = InstrumentationScope("odradek", __version__)
        self._start_ns = start_ns
        self._exporter = OTLPMetricExporter(
            endpoint=_url(endpoint, "metrics"), max_export_batch_size=_POINTS_PER_REQUEST_MAX
        )

    def export(self, families: Iterable[Family], now_ns: int) -> bool:
        """Blocks until the collector has all of it, or refused it; returns which."""
        metrics = [self._metric(family, now_ns) for family in families if family.samples]
        scoped = sdk_metrics.ScopeMetrics(scope=self._scope, metrics=metrics, schema_url="")
        of_resource = sdk_metrics.ResourceMetrics(
            resource=self._resource, scope_metrics=[scoped], schema_url=""
        )
        outcome = self._exporter.export(sdk_metrics.MetricsData(resource_metrics=[of_resource]))
        return outcome is sdk_metrics.MetricExportResult.SUCCESS

    def close(self) -> None:
        """Ends a request that is being sent again. Blocks for `_CLOSE_S` seconds at most."""
        _within(_CLOSE_S, self._exporter.shutdown)

    def _metric(self, family: Family, now_ns: int) -> sdk_metrics.Metric:
        cumulative = sdk_metrics.AggregationTemporality.CUMULATIVE
        data: sdk_metrics.DataT
        if family.kind is MetricKind.HISTOGRAM:
            points = [self._distribution(text, value, now_ns) for text, value in family.samples]
            data = sdk_metrics.Histogram(data_points=points, aggregation_temporality=cumulative)
        else:
            numbers = [
                sdk_metrics.NumberDataPoint(
                    attributes=label_pairs(text),
                    start_time_unix_nano=self._start_ns,
                    time_unix_nano=now_ns,
                    value=value,  # type: ignore[arg-type]
                )
                for text, value in family.samples
            ]
            if family.kind is MetricKind.COUNTER:
                data = sdk_metrics.Sum(
                    data_points=numbers, aggregation_temporality=cumulative, is_monotonic=True
                )
            else:
                data = sdk_metrics.Gauge(data_points=numbers)
        name = f"{family.name}_total" if family.kind is MetricKind.COUNTER else family.name
        return sdk_metrics.Metric(name=name, description=family.meaning, unit="", data=data)

    def _distribution(self, text: str, value: object, now_ns: int) -> sdk_metrics.HistogramDataPoint:
        assert isinstance(value, Histogram)
        return sdk_metrics.HistogramDataPoint(
            attributes=label_pairs(text),
            start_time_unix_nano=self._start_ns,
            time_unix_nano=now_ns,
            count=value.count,
            sum=value.total,
            bucket_counts=_numbers(value.counts),
            explicit_bounds=value.bounds,
            min=None,  # type: ignore[arg-type]
            max=None,  # type: ignore[arg-type]
        )


def _numbers(counts: Sequence[int]) -> tuple[int, ...]:
    return tuple(counts)


def _sdk_context(context: TraceContext, *, is_remote: bool) -> trace.SpanContext:
    return trace.SpanContext(
        trace_id=context.trace_id,
        span_id=context.span_id,
        is_remote=is_remote,
        trace_flags=trace.TraceFlags(int(context.is_sampled)),
    )


def _url(endpoint: str, signal: str) -> str:
    return f"{endpoint.rstrip('/')}/v1/{signal}"


def _within(seconds: float, work: Callable[[], object]) -> None:
    """Calls `work` on a thread and waits for its end for so long: a collector that is away holds up no one's end."""
    thread = threading.Thread(target=work, name="odradek-otlp-close", daemon=True)
    thread.start()
    thread.join(seconds)
