"""The spans of a producer, with `enable.opentelemetry=true`: one for each record, from `send` to its acknowledgement."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from odradek.client.producer.delivery import Delivery
from odradek.client.producer.record_input import HeaderInput, TracedHeaders, to_headers
from odradek.model.errors import ConfigError
from odradek.model.version import __version__

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace.status import Status, StatusCode
except ImportError as missing:
    raise ConfigError(
        f"enable.opentelemetry=true needs more ({missing}): pip install 'odradek[otel]'"
    ) from None


class SendSpan:
    """The span of one record, from `send` to its acknowledgement. `headers` are the record's, with the context."""

    def __init__(self, span: trace.Span, headers: TracedHeaders) -> None:
        self._span = span
        self.headers: Final = headers

    def follow(self, delivery: Delivery) -> None:
        """The span ends with the delivery, on the client's own thread."""
        if self._span.is_recording():
            delivery.when_settled(self._settled)

    def fail(self, error: BaseException) -> None:
        self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end()

    def _settled(self, partition: int, offset: int, error: Exception | None) -> None:
        self._span.set_attribute("messaging.destination.partition.id", str(partition))
        if error is not None:
            self.fail(error)
            return
        if offset >= 0:
            self._span.set_attribute("messaging.kafka.offset", offset)
        self._span.end()


class RowsSpan:
    """The span of the rows of one frame, from `send_arrow` to the acknowledgement of its last batch."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._lock = threading.Lock()
        self._open_count = 1
        """The batches without an outcome; `send_arrow` itself counts as one while it runs."""
        self._row_count = 0
        self._error_text: str | None = None

    def follow(self, delivery: Delivery, row_count: int) -> None:
        """Adds a batch of the frame. Its fate comes on the client's own thread."""
        with self._lock:
            self._open_count += 1
            self._row_count += row_count
        batch = delivery.batch  # of a batch that is split, too: it is done when its parts are
        batch.when_done(lambda: self.settle(batch.error))

    def settle(self, error: BaseException | None) -> None:
        """Notes the fate of one batch, or of `send_arrow` itself; the last one ends the span."""
        with self._lock:
            self._open_count -= 1
            if error is not None and self._error_text is None:
                self._error_text = str(error)
            if self._open_count:
                return
        self._span.set_attribute("messaging.batch.message_count", self._row_count)
        if self._error_text is not None:
            self._span.set_status(Status(StatusCode.ERROR, self._error_text))
        self._span.end()


class ProducerSpans:
    """Makes the spans of one producer. Used on any thread."""

    def __init__(self, client_id: str) -> None:
        self._tracer = trace.get_tracer("odradek", __version__)
        self._client_id = client_id

    @contextmanager
    def sending(self, topic: str, headers: HeaderInput) -> Iterator[SendSpan]:
        """Yields the span of a record that is about to be sent. An error that leaves the block ends it.

        Headers of the trace that the record had before are replaced: the span is a child of the application's current one.
        """
        span = self._begin(topic)
        sent = SendSpan(span, _with_context(span, to_headers(headers)))
        try:
            yield sent
        except BaseException as error:
            sent.fail(error)
            raise

    @contextmanager
    def sending_rows(self, topic: str) -> Iterator[RowsSpan]:
        """Yields the span of a frame that is about to be sent. Its rows keep the headers that they have."""
        rows = RowsSpan(self._begin(topic))
        try:
            yield rows
        except BaseException as error:
            rows.settle(error)
            raise
        rows.settle(None)

    def _begin(self, topic: str) -> trace.Span:
        return self._tracer.start_span(
            f"send {topic}",
            kind=trace.SpanKind.PRODUCER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.destination.name": topic,
                "messaging.client.id": self._client_id,
            },
        )


def _with_context(span: trace.Span, headers: tuple[tuple[str, bytes | None], ...]) -> TracedHeaders:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=trace.set_span_in_context(span))
    kept = [pair for pair in headers if pair[0] not in carrier]
    return TracedHeaders([*kept, *((name, value.encode()) for name, value in carrier.items())])
