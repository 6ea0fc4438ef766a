"""An OpenTelemetry collector for tests: it takes OTLP over HTTP, and keeps what it was sent as OpenTelemetry's own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.kit.waiting import eventually

WAIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedSpan:
    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    is_error: bool
    error: str


class OtlpCollector:
    """A context manager. `status`: what it answers with."""

    def __init__(self) -> None:
        self.status = 200
        self._traces: list[ExportTraceServiceRequest] = []
        self._metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.headers.append(dict(self.headers.items()))
                if collector.status == 200:
                    collector.take(self.path, body)
                self.send_response(collector.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            self._traces.append(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            self._metrics.append(ExportMetricsServiceRequest.FromString(body))
        else:
            raise AssertionError(f"nothing is sent to {path}")

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self) -> list[CollectedSpan]:
        return [
            CollectedSpan(
                name=span.name,
                service=_attributes(of_resource.resource.attributes).get("service.name", ""),
                trace_id=span.trace_id.hex(),
                span_id=span.span_id.hex(),
                parent_id=span.parent_span_id.hex(),
                start_ns=span.start_time_unix_nano,
                end_ns=span.end_time_unix_nano,
                attributes=_attributes(span.attributes),
                is_error=span.status.code == 2,
                error=span.status.message,
            )
            for request in list(self._traces)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]

    def metrics(self) -> dict[str, Any]:
        """The last metric of each name."""
        return {
            metric.name: metric
            for request in list(self._metrics)
            for of_resource in request.resource_metrics
            for of_scope in of_resource.scope_metrics
            for metric in of_scope.metrics
        }

    def eventually(self, check: Callable[[], bool]) -> None:
        eventually(check, lambda: [span.name for span in self.spans()])

    def wait_for_spans(self, *names: str) -> dict[str, CollectedSpan]:
        """The spans of these names, once all are there; one of each."""
        self.eventually(lambda: set(names) <= {span.name for span in self.spans()})
        return {span.name: span for span in self.spans()}


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
