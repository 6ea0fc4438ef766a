"""The table of a consumer's metrics: Kafka's names, and who owns each figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from odradek.client.consumer.completed_fetch import FetchedChunk
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.participation import Participation
from odradek.client.consumer.subscription_state import Assignment
from odradek.client.network import metrics
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.metrics import Measure, Metric, MetricName, Rows
from odradek.model.ids import TopicPartition

FETCHING: Final = "consumer-fetch-manager-metrics"
COORDINATION: Final = "consumer-coordinator-metrics"
CONNECTIONS: Final = "consumer-metrics"

Lags = Mapping[TopicPartition, int]


class ConsumerMetrics:
    """The counts of a consumer that hands out records, on its user's thread, and the table of all its figures."""

    def __init__(
        self,
        assignment: Assignment,
        fetcher: Fetcher,
        cluster: ClusterClient,
        group: Participation | None,
        *,
        kept_starts: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:
        """`kept_starts`: the first offsets of records that were taken, and that the user has not seen yet."""
        self._assignment = assignment
        self._fetcher = fetcher
        self._cluster = cluster
        self._group = group
        self._kept_starts = kept_starts
        self.records: Final = Measure(cluster.clock)
        self.bytes: Final = Measure(cluster.clock)

    def used(self, chunk: FetchedChunk) -> None:
        """A chunk counts once, when nothing of it is left."""
        if chunk.empty:
            self.bytes.add(chunk.size_bytes)

    def read(self, client_id: str) -> dict[MetricName, float]:
        """Returns the figures now. From any thread."""
        lags = self._assignment.lags(self._kept_starts())
        links = [self._cluster.links, self._fetcher.links]
        if self._group is not None:
            links.append(self._group.membership.links)
        open_count = Metric(
            CONNECTIONS,
            "connection-count",
            "Open connections.",
            lambda: float(sum(connections.open_count for connections in links)),
        )
        rows = chain(self._reading(lags), self._coordination(), [open_count])
        return metrics.read(rows, client_id) | _of_partitions(lags, client_id)

    def _reading(self, lags: Lags) -> Rows:
        yield from metrics.total(FETCHING, "records-consumed", "Records that were returned", self.records)
        of_bytes = "Bytes of the batches that records were returned from, as they came"
        yield from metrics.total(FETCHING, "bytes-consumed", of_bytes, self.bytes)
        sizes = self._fetcher.fetched_bytes
        yield from metrics.count(FETCHING, "fetch", "Fetch requests that were answered", sizes)
        yield from metrics.latency(FETCHING, "fetch-latency", "a Fetch request", self._fetcher.latency)
        yield from metrics.size(FETCHING, "fetch-size", "the bytes of records in an answer", sizes)
        yield Metric(
            FETCHING,
            "records-lag-max",
            "The largest lag of a partition in records, by the last responses.",
            lambda: float(max(lags.values())) if lags else math.nan,
        )

    def _coordination(self) -> Rows:
        if self._group is None:
            return
        latencies = self._group.store.commit_latency
        yield from metrics.count(COORDINATION, "commit", "Commits that were answered", latencies)
        yield from metrics.latency(COORDINATION, "commit-latency", "a commit", latencies)
        yield Metric(
            COORDINATION,
            "assigned-partitions",
            "Partitions that this consumer has.",
            lambda: float(len(self._assignment.states)),
        )


def _of_partitions(lags: Lags, client_id: str) -> dict[MetricName, float]:
    """Returns the lag of each partition where it is known."""
    client = ("client-id", client_id)
    return {
        MetricName(
            FETCHING, "records-lag", (client, ("topic", tp.topic), ("partition", str(tp.partition)))
        ): float(lag)
        for tp, lag in lags.items()
    }
