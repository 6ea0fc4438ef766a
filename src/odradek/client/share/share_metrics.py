"""The table of a share consumer's metrics: Kafka's names, and who owns each figure."""

from __future__ import annotations

from itertools import chain
from typing import Final

from odradek.client.groups.membership import GroupMembership
from odradek.client.groups.sharing import SharingMember
from odradek.client.network import metrics
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.metrics import Measure, Metric, MetricName, Rows
from odradek.client.share.share_fetcher import ShareFetcher

SHARE_FETCHING: Final = "consumer-share-fetch-manager-metrics"
SHARE_COORDINATION: Final = "consumer-share-coordinator-metrics"
SHARE_CONNECTIONS: Final = "consumer-share-metrics"


class ShareConsumerMetrics:
    """The counts of a share consumer that returns records, on its user's thread, and the table of all its figures."""

    def __init__(
        self,
        fetcher: ShareFetcher,
        cluster: ClusterClient,
        membership: GroupMembership,
        member: SharingMember,
    ) -> None:
        self._fetcher = fetcher
        self._cluster = cluster
        self._membership = membership
        self._member = member
        self.records: Final = Measure(cluster.clock)

    def read(self, client_id: str) -> dict[MetricName, float]:
        """Returns the figures now. From any thread."""
        return metrics.read(chain(self._fetching(), self._rest()), client_id)

    def _fetching(self) -> Rows:
        fetcher = self._fetcher
        yield from metrics.total(
            SHARE_FETCHING, "records-consumed", "Records that were returned", self.records
        )
        of_bytes = "Bytes of the batches that came"
        yield from metrics.total(SHARE_FETCHING, "bytes-consumed", of_bytes, fetcher.fetched_bytes)
        yield from metrics.count(
            SHARE_FETCHING, "fetch", "ShareFetch requests that were answered", fetcher.latency
        )
        yield from metrics.latency(SHARE_FETCHING, "fetch-latency", "a ShareFetch request", fetcher.latency)
        yield from metrics.size(
            SHARE_FETCHING, "fetch-size", "the bytes of records in an answer", fetcher.fetched_bytes
        )
        stored = "Acknowledgements that brokers have stored"
        yield from metrics.total(SHARE_FETCHING, "acknowledgements-send", stored, fetcher.acknowledged)
        refused = "Acknowledgements that failed"
        yield from metrics.total(SHARE_FETCHING, "acknowledgements-error", refused, fetcher.refused)

    def _rest(self) -> Rows:
        links = [self._cluster.links, self._fetcher.links, self._membership.links]
        yield Metric(
            SHARE_COORDINATION,
            "assigned-partitions",
            "Partitions that this member reads.",
            lambda: float(sum(len(numbers) for numbers in self._member.assigned.values())),
        )
        yield Metric(
            SHARE_CONNECTIONS,
            "connection-count",
            "Open connections.",
            lambda: float(sum(connections.open_count for connections in links)),
        )
