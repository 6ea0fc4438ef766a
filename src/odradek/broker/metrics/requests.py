"""How long requests take and how often they fail, by API: the figures behind Kafka's RequestMetrics. Used on the event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import Final

from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.net.replies import HeldReply, Reply
from odradek.protocol import APIS
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.runtime.ports import Buffer
from odradek.telemetry.metrics import Family, Histogram, counter, gauge, histogram, labels

_START: Final = Struct(">hh")
_FETCH: Final = 1
_FOLLOWERS_FETCH: Final = -1
"""In place of the API's key: the fetches of followers have figures of their own, as in Kafka."""
_UNSUPPORTED: Final = -1
_NAMES: Final = {_FETCH: "FetchConsumer", _FOLLOWERS_FETCH: "FetchFollower"}
_QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""As the JMX exporter spells them."""
_WINDOW_S: Final = 60.0
_SNAPSHOT_EVERY_S: Final = 10.0
_BEAN: Final = "kafka_network_requestmetrics_"


class ApiFigures:
    """The figures of one API."""

    __slots__ = ("_snapshots", "counts", "errors", "request_bytes", "seconds")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """By version."""
        self.errors: dict[int, int] = {}
        """By error code."""
        self.request_bytes = 0
        self.seconds = Histogram()
        self._snapshots: deque[tuple[float, Histogram]] = deque()

    def lately(self, now: float) -> Histogram:
        """Returns the times of about the last minute: of the time since the last scrape that is at least so long ago."""
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now - _WINDOW_S:
            snapshots.popleft()
        times = self.seconds.copy()
        if not snapshots or now - snapshots[-1][0] >= _SNAPSHOT_EVERY_S:
            snapshots.append((now, self.seconds.copy()))
        before = snapshots[0][1]
        if before.count < times.count:
            times.counts = [after - early for after, early in zip(times.counts, before.counts, strict=True)]
            times.total -= before.total
        return times


class RequestFigures:
    """The figures of all APIs that were served. `now`: monotonic, in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now: Final = now
        self._apis: Final[dict[int, ApiFigures]] = {}

    def answered(self, connection: Connection, frame: Buffer, reply: Reply, began: float) -> Reply:
        """Counts a request that is served, and notes how long it took when its answer is made. Returns what is to be answered.

        What is refused as unknown is not counted: each number that a stranger sends would become a series.
        """
        key, version = _START.unpack_from(frame)
        if key == _FETCH and connection.client_software[0] == BROKER_SOFTWARE:
            figures = self._of(_FOLLOWERS_FETCH)
        else:
            figures = self._of(key)
        counts = figures.counts
        if version not in counts and version not in APIS[key].versions:
            version = _UNSUPPORTED  # ApiVersions alone answers these
        counts[version] = counts.get(version, 0) + 1
        figures.request_bytes += len(frame)
        if reply is None or isinstance(reply, list):
            figures.seconds.add(self.now() - began)
            return reply
        later = reply.chunks if isinstance(reply, HeldReply) else reply
        future = asyncio.ensure_future(later)
        future.add_done_callback(partial(self._ended, figures, began))
        if not isinstance(reply, HeldReply):
            return future
        reply.chunks = future
        return reply

    def _ended(self, figures: ApiFigures, began: float, future: asyncio.Future[list[Buffer] | None]) -> None:
        if not future.cancelled():
            figures.seconds.add(self.now() - began)

    def failed(self, api_key: int, code: int) -> None:
        """Counts an error of an answer."""
        errors = self._of(api_key).errors
        errors[code] = errors.get(code, 0) + 1

    def _of(self, api_key: int) -> ApiFigures:
        figures = self._apis.get(api_key)
        if figures is None:
            figures = self._apis[api_key] = ApiFigures()
        return figures

    def families(self) -> list[Family]:
        """Returns Kafka's figures, with quantiles of about the last minute, and histograms of the times."""
        now = self.now()
        requests = counter(f"{_BEAN}requests", "Requests of an API, by version.")
        errors = counter(f"{_BEAN}errors", "Errors in answers of an API, by name.")
        sizes = counter("odradek_request_bytes", "Bytes of requests of an API.")
        times = gauge(f"{_BEAN}totaltimems", "Milliseconds that requests took, of about the last minute.")
        counts = gauge(f"{_BEAN}totaltimems_count", "Requests of an API whose answers were made.")
        seconds = histogram("odradek_request_seconds", "Times from a request's frame to its answer.")
        for name, all_figures in self._named():
            for version in sorted({version for figures in all_figures for version in figures.counts}):
                count = sum(figures.counts.get(version, 0) for figures in all_figures)
                requests.add(count, labels(request=name, version=version))
            for code in sorted({code for figures in all_figures for code in figures.errors}):
                count = sum(figures.errors.get(code, 0) for figures in all_figures)
                errors.add(count, labels(request=name, error=ErrorCode.of(code).name))
            text = labels(request=name)
            sizes.add(sum(figures.request_bytes for figures in all_figures), text)
            total = _sum(figures.seconds for figures in all_figures)
            seconds.add(total, text)
            counts.add(total.count, text)
            lately = _sum(figures.lately(now) for figures in all_figures)
            for spelled, quantile in _QUANTILES.items():
                times.add(quantile_of(lately, quantile) * 1_000, labels(request=name, quantile=spelled))
        return [requests, errors, times, counts, sizes, seconds]

    def _named(self) -> list[tuple[str, list[ApiFigures]]]:
        """Returns the figures by Kafka's names. Fetch is the sum of what consumers and followers fetch."""
        named = [
            (_NAMES.get(key) or APIS[key].name, [figures]) for key, figures in sorted(self._apis.items())
        ]
        fetches = [self._apis[key] for key in (_FETCH, _FOLLOWERS_FETCH) if key in self._apis]
        return [*named, (APIS[_FETCH].name, fetches)] if fetches else named


def quantile_of(times: Histogram, quantile: float) -> float:
    """Returns a quantile in seconds, interpolated within its bucket; 0 without a value. The last bound stands for more."""
    wanted = quantile * times.count
    below, bound = 0.0, 0.0
    for upper, count in zip(times.bounds, times.counts, strict=False):
        if count and below + count >= wanted:
            return bound + (upper - bound) * max(wanted - below, 0.0) / count
        below, bound = below + count, upper
    return bound if times.count else 0.0


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for part in histograms:
        total.counts = [mine + other for mine, other in zip(total.counts, part.counts, strict=True)]
        total.total += part.total
    return total
