"""The table of a producer's metrics: Kafka's names, and who owns each figure."""

from __future__ import annotations

from typing import Final

from odradek.client.network import metrics
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.metrics import Measure, Metric, Rows
from odradek.client.producer.accumulator import Accumulator
from odradek.client.producer.delivery import ProducerBatch
from odradek.runtime.ports import Clock

GROUP: Final = "producer-metrics"


class SendingFigures:
    """The sender's counts, on the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.sent: Final = Measure(clock)
        """Records of each batch that was put into a request, at each attempt."""
        self.batch_bytes: Final = Measure(clock)
        self.request_records: Final = Measure(clock)
        self.queue_time: Final = Measure(clock)
        self.failed: Final = Measure(clock)
        self.retried: Final = Measure(clock)
        self.split: Final = Measure(clock)
        self.request_latency: Final = Measure(clock)

    def sending(self, batches: list[ProducerBatch]) -> None:
        """Counts a request with these batches that is about to be sent."""
        now = self._clock.monotonic()
        for batch in batches:
            self.sent.add(batch.record_count)
            self.batch_bytes.add(batch.size_bytes)
            if batch.attempt_count == 1:
                self.queue_time.add(now - batch.created_at)
        self.request_records.add(sum(batch.record_count for batch in batches))


def rows(figures: SendingFigures, accumulator: Accumulator, cluster: ClusterClient) -> Rows:
    """Yields every metric of a producer."""
    sent = "Records that were put into requests; a record that is sent again counts again"
    yield from metrics.total(GROUP, "record-send", sent, figures.sent)
    yield from metrics.total(GROUP, "record-error", "Records that were given up", figures.failed)
    yield from metrics.total(GROUP, "record-retry", "Records that are sent again", figures.retried)
    yield from metrics.count(GROUP, "batch-split", "Batches that were split: too large", figures.split)
    yield from metrics.size(GROUP, "batch-size", "the bytes of a batch, compressed", figures.batch_bytes)
    yield from metrics.count(GROUP, "request", "Produce requests that were sent", figures.request_records)
    yield Metric(
        GROUP,
        "records-per-request-avg",
        "The average number of records in a request.",
        lambda: figures.request_records.average,
    )
    yield from metrics.latency(GROUP, "request-latency", "a Produce request", figures.request_latency)
    yield from metrics.latency(
        GROUP, "record-queue-time", "a batch before it is sent first", figures.queue_time
    )
    yield Metric(
        GROUP,
        "requests-in-flight",
        "Requests that wait for an answer.",
        lambda: float(cluster.links.in_flight),
    )
    yield Metric(GROUP, "connection-count", "Open connections.", lambda: float(cluster.links.open_count))
    yield Metric(GROUP, "buffer-total-bytes", "buffer.memory.", lambda: float(accumulator.memory_bytes))
    yield Metric(
        GROUP,
        "buffer-available-bytes",
        "What is left of buffer.memory.",
        lambda: float(accumulator.free_bytes),
    )
