"""A broker's traffic by topic: the counters of Kafka's BrokerTopicMetrics. Used on the event loop
only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from operator import add, attrgetter
from typing import Final

from odradek.telemetry.metrics import Family, MetricKind, Row, labels

_FIELDS: Final = {
    "messages_in": ("messagesin", "Records that producers wrote to partitions led here."),
    "bytes_in": ("bytesin", "Bytes of batches that producers wrote to partitions led here."),
    "bytes_out": ("bytesout", "Bytes of records that consumers got."),
    "rejected_bytes": ("bytesrejected", "Bytes of batches that were too large."),
    "produce_count": ("totalproducerequests", "Appends that producers asked for; one for each partition of a request."),
    "failed_produce_count": ("failedproducerequests", "Appends of producers that were refused."),
    "fetch_count": ("totalfetchrequests", "Reads that consumers and followers got; one for each partition of an answer."),
    "failed_fetch_count": ("failedfetchrequests", "Reads of consumers and followers that were refused."),
    "replicated_bytes_out": ("replicationbytesout", "Bytes of batches that followers got."),
    "replicated_bytes_in": ("replicationbytesin", "Bytes of batches that this broker got as a follower."),
}  # fmt: skip
_OF_ALL_ONLY: Final = frozenset({"replicated_bytes_out", "replicated_bytes_in"})
"""Kafka counts it for the broker as a whole."""
_BEAN: Final = "kafka_server_brokertopicmetrics_"
_counters: Final[Callable[[TopicTraffic], tuple[int, ...]]] = attrgetter(*_FIELDS)
"""The counters of a topic, in the order of `_FIELDS`."""


class TopicTraffic:
    """The counters of one topic."""

    __slots__ = tuple(_FIELDS)

    def __init__(self) -> None:
        self.messages_in = self.bytes_in = self.bytes_out = self.rejected_bytes = 0
        self.produce_count = self.failed_produce_count = 0
        self.fetch_count = self.failed_fetch_count = 0
        self.replicated_bytes_out = self.replicated_bytes_in = 0

    def appended(self, record_count: int, size_bytes: int) -> None:
        """Counts an append of a producer's batches to one partition."""
        self.produce_count += 1
        self.messages_in += record_count
        self.bytes_in += size_bytes

    def refused(self, too_large_bytes: int = 0) -> None:
        """Counts an append that was refused. `too_large_bytes`: the size of a batch that was too large."""
        self.produce_count += 1
        self.failed_produce_count += 1
        self.rejected_bytes += too_large_bytes

    def fetched(self, size_bytes: int, *, by_follower: bool, failed: bool) -> None:
        """Counts one partition's part of an answer to a fetch."""
        self.fetch_count += 1
        self.failed_fetch_count += failed
        if by_follower:
            self.replicated_bytes_out += size_bytes
        else:
            self.bytes_out += size_bytes

    def add(self, other: TopicTraffic) -> None:
        for name in _FIELDS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class BrokerTraffic:
    """The counters of all topics that this broker served since it started. Its sums keep what deleted topics had."""

    def __init__(self) -> None:
        self._topics: Final[dict[str, TopicTraffic]] = {}
        self._gone: Final = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """Returns the counters of a topic that exists: what strangers ask for must not become a series."""
        traffic = self._topics.get(topic)
        if traffic is None:
            traffic = self._topics[topic] = TopicTraffic()
        return traffic

    def copied(self, size_bytes: int) -> None:
        """Counts batches that this broker appended as a follower."""
        self._gone.replicated_bytes_in += size_bytes

    def forget(self, topics: Collection[str]) -> None:
        """Adds the counters of topics that are no more to the broker's sums, and lets them go."""
        for topic in topics:
            traffic = self._topics.pop(topic, None)
            if traffic is not None:
                self._gone.add(traffic)

    def steps(self) -> Generator[None, None, list[Family]]:
        """Returns the sums of the broker, which have no label, and each topic's counters; yields between topics."""
        rows: list[Row] = []
        sums = list(_counters(self._gone))
        for name, traffic in list(self._topics.items()):
            yield
            counters = _counters(traffic)
            rows.append((labels(topic=name), *counters))
            sums = list(map(add, sums, counters))
        families = []
        for position, (field, (name, meaning)) in enumerate(_FIELDS.items(), start=1):
            columns = [([("", *sums)], position)]
            if field not in _OF_ALL_ONLY:
                columns.append((rows, position))
            families.append(
                Family(name=f"{_BEAN}{name}", kind=MetricKind.COUNTER, meaning=meaning, columns=columns)
            )
        return families
