"""The spans of a consumer, with `enable.opentelemetry=true`: one for each traced record that `poll` returns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from odradek.model.errors import ConfigError
from odradek.model.version import __version__
from odradek.telemetry.trace_context import TRACEPARENT

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context
except ImportError as missing:
    raise ConfigError(
        f"enable.opentelemetry=true needs more ({missing}): pip install 'odradek[otel]'"
    ) from None

_TEXT_BYTES_MAX: Final = 8_192
"""Longer headers are no part of a trace context."""


class TraceableRecord(Protocol):
    """A record of a consumer or of a share consumer."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...


def context_of(record: TraceableRecord) -> Context:
    """Returns the context in a record's headers, as the parent of spans: an empty one if there is none.

    with tracer.start_as_current_span("process", context=context_of(record)):
        ...
    """
    carrier = {
        name: value.decode("utf-8", "replace")
        for name, value in record.headers
        if value is not None and len(value) <= _TEXT_BYTES_MAX
    }
    return propagate.extract(carrier, context=Context())


class ConsumerSpans:
    """Makes the spans of one consumer, on the thread that polls."""

    def __init__(self, client_id: str, group_id: str) -> None:
        self._tracer = trace.get_tracer("odradek", __version__)
        self._own = {"messaging.system": "kafka", "messaging.client.id": client_id}
        if group_id:
            self._own["messaging.consumer.group.name"] = group_id

    def received(self, records: Iterable[TraceableRecord], began_ns: int) -> None:
        """Makes a span for each traced record; `began_ns`: the wall time when the poll had something to return."""
        for record in records:
            if not record.headers or not any(name == TRACEPARENT for name, _ in record.headers):
                continue
            context = context_of(record)
            if not trace.get_current_span(context).get_span_context().trace_flags.sampled:
                continue
            span = self._tracer.start_span(
                f"receive {record.topic}",
                context=context,
                kind=trace.SpanKind.CONSUMER,
                start_time=began_ns,
                attributes={
                    **self._own,
                    "messaging.operation.name": "receive",
                    "messaging.destination.name": record.topic,
                    "messaging.destination.partition.id": str(record.partition),
                    "messaging.kafka.offset": record.offset,
                },
            )
            span.end()
