"""OpenTelemetry's spans of a client, with `enable.opentelemetry=true` and `odradek[otel]`.

A producer makes a span for each record that `send` takes, and writes its context into the record's headers (`traceparent`)
with the propagator that the application set. A consumer makes a span for each traced record that `poll` returns. The
application's own tracer provider decides what is sampled and where it goes: without one, all of this does nothing.
"""

from __future__ import annotations

from odradek.client.consumer.spans import TraceableRecord, context_of

__all__ = ["TraceableRecord", "context_of"]
