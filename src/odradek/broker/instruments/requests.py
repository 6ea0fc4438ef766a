"""How long requests take and how often they fail, by API: the source of Kafka's RequestMetrics. Used on the
event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from struct import Struct
from typing import Final

from odradek.broker.instruments.slow_requests import LONG_POLLS, SlowRequests
from odradek.model.errors import ErrorCode
from odradek.net.connection import Connection
from odradek.net.replies import HeldReply, PendingReply, Reply
from odradek.protocol import APIS
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.runtime.ports import Buffer
from odradek.runtime.prompt import PromptFuture
from odradek.telemetry.metrics import Family, Histogram, counter, gauge, histogram, labels

_START: Final = Struct(">hh")
_PRODUCE: Final = 0
_FETCH: Final = 1
_FOLLOWERS_FETCH: Final = -1
"""It takes the place of the API's key: the fetches of followers have figures of their own, as in Kafka."""
_UNSUPPORTED: Final = -1
_NAMES: Final = {_FETCH: "FetchConsumer", _FOLLOWERS_FETCH: "FetchFollower"}
_QUANTILES: Final = {"0.50": 0.5, "0.75": 0.75, "0.95": 0.95, "0.98": 0.98, "0.99": 0.99, "0.999": 0.999}
"""The quantiles, as the JMX exporter spells them."""
_WINDOW_S: Final = 60.0
_SNAPSHOT_EVERY_S: Final = 10.0
_DELAYED: Final = {
    "Produce": (0,),
    "Fetch": (_FETCH, _FOLLOWERS_FETCH),
    "ShareFetch": (78,),
    "Rebalance": (11, 14),
    "DeleteRecords": (21,),
    "ElectLeader": (43,),
}
"""Kafka's delayed operations, and the APIs that wait for them."""
_BEAN: Final = "kafka_network_requestmetrics_"


class Stage(Enum):
    """The parts of a request's time. The values are the labels of `odradek_request_stage_seconds`."""

    QUEUED = "queued"
    """It was received, and waited for earlier requests of its connection."""
    HANDLED = "handled"
    """The event loop was busy with it, until it was answered or had to wait."""
    WAITED = "waited"
    """It waited: for the disk, for followers, for records, for other brokers or members."""
    RESPONSE_QUEUED = "response_queued"
    """Its answer was there, and waited for earlier answers of its connection."""
    SENT = "sent"
    """Its answer was written, until the kernel had all of it."""
    RECEIVED = "received"
    """It came in several parts: from the first to the last of them. One that came in one part has none."""
    FSYNC = "fsync"
    """The part of its wait until what it wrote was on the disk here."""
    REPLICATED = "replicated"
    """The rest of its wait, until the replicas in sync had what it wrote."""


_TIMES: Final = {
    "totaltimems": "that requests took until their answers were made",
    "requestqueuetimems": "in which requests waited for earlier ones of their connection",
    "localtimems": "in which the event loop was busy with requests",
    "remotetimems": "in which requests waited for disks, followers, records, brokers or members",
    "responsequeuetimems": "in which answers waited for earlier ones of their connection",
    "responsesendtimems": "until the kernel had the answers",
}
"""Kafka's names of the times, in the order of `ApiFigures.times`."""


class ApiFigures:
    """The figures of one API."""

    __slots__ = (
        "_snapshots",
        "counts",
        "errors",
        "fsync",
        "handled",
        "pending_count",
        "queued",
        "received",
        "replicated",
        "request_bytes",
        "response_queued",
        "seconds",
        "sent",
        "throttled",
        "waited",
    )

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """The requests of each version."""
        self.errors: dict[int, int] = {}
        """The answers with each error code."""
        self.request_bytes = 0
        self.pending_count = 0
        """Requests whose answers are not there yet."""
        self.seconds = Histogram()
        # Attributes and no mapping: a sample is on each request's path.
        self.queued = Histogram()
        self.handled = Histogram()
        self.waited = Histogram()
        self.response_queued = Histogram()
        self.sent = Histogram()
        self.received = Histogram()
        self.fsync = Histogram()
        self.replicated = Histogram()
        self.throttled = Histogram()
        """The times for which quotas muted clients."""
        self._snapshots: deque[tuple[float, list[Histogram]]] = deque()

    @property
    def times(self) -> list[Histogram]:
        """The time of whole requests, and of the stages that Kafka measures, too."""
        return [self.seconds, self.queued, self.handled, self.waited, self.response_queued, self.sent]

    @property
    def stages(self) -> list[Histogram]:
        """The times in the order of `Stage`."""
        return [*self.times[1:], self.received, self.fsync, self.replicated]

    def lately(self, now: float) -> list[Histogram]:
        """Returns the times of about the last minute: of the time since the last scrape that is at least so long ago."""
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now - _WINDOW_S:
            snapshots.popleft()
        if not snapshots or now - snapshots[-1][0] >= _SNAPSHOT_EVERY_S:
            snapshots.append((now, [times.copy() for times in self.times]))
        return [_since(before, times) for before, times in zip(snapshots[0][1], self.times, strict=True)]


def _since(before: Histogram, times: Histogram) -> Histogram:
    """Returns what came to a histogram; all of it if nothing came."""
    new = times.copy()
    if before.count < new.count:
        new.counts = [after - early for after, early in zip(new.counts, before.counts, strict=True)]
        new.total -= before.total
    return new


class ServedRequest:
    """The times of one request. An `AnswerObserver` of its connection."""

    __slots__ = (
        "_all",
        "_api",
        "_began",
        "_connection",
        "_handled_s",
        "_key",
        "_queued_s",
        "_version",
        "_waited_s",
    )

    def __init__(
        self,
        figures: RequestFigures,
        api: ApiFigures,
        connection: Connection,
        key: int,
        version: int,
        began: float,
        ended: float,
    ) -> None:
        self._all = figures
        self._api = api
        self._connection = connection
        self._key, self._version = key, version
        self._began = began
        self._queued_s = max(began - connection.figures.arrived_at, 0.0)
        self._handled_s = ended - began
        self._waited_s = 0.0
        api.queued.add(self._queued_s)
        api.handled.add(self._handled_s)
        own = connection.figures
        own.handled_s += self._handled_s
        if own.received_s and own.received_at == own.arrived_at:
            api.received.add(own.received_s)
            own.received_s = 0.0

    def waited(self, future: PendingReply) -> None:
        """Notes that the answer came later, or that the request was given up."""
        self._api.pending_count -= 1
        if not future.cancelled():
            total_s = self._all.now() - self._began
            self._waited_s = total_s - self._handled_s
            self._api.seconds.add(total_s)
            self._api.waited.add(self._waited_s)

    def sent(self, queued_s: float, sending_s: float) -> None:
        self._api.response_queued.add(queued_s)
        self._api.sent.add(sending_s)
        # What waits for records or members waits because it was asked to.
        waited_s = 0.0 if self._key in LONG_POLLS else self._waited_s
        total_s = self._queued_s + self._handled_s + waited_s + queued_s + sending_s
        if total_s >= self._all.slow.limit_s:
            times = (self._queued_s, self._handled_s, self._waited_s, queued_s, sending_s)
            self._all.slow.note(self._key, self._version, self._connection, times)


class RequestFigures:
    """The figures of all APIs that were served. `now`: monotonic, in seconds."""

    def __init__(self, now: Callable[[], float], slow: SlowRequests | None = None) -> None:
        self.now: Final = now
        self.slow: Final = slow or SlowRequests(0, lambda: 0)
        self._apis: Final[dict[int, ApiFigures]] = {}

    def answered(self, connection: Connection, frame: Buffer, reply: Reply, began: float) -> Reply:
        """Counts a request that is served, and notes how long it took when its answer is made. Returns the
        reply to send.

        What is refused as unknown is not counted: each number that a stranger sends would become a series.
        """
        key, version = _START.unpack_from(frame)
        if key == _FETCH and connection.client_software[0] == BROKER_SOFTWARE:
            figures = self._of(_FOLLOWERS_FETCH)
        else:
            figures = self._apis.get(key) or self._of(key)
        counts = figures.counts
        if version not in counts and version not in APIS[key].versions:
            version = _UNSUPPORTED  # ApiVersions alone answers these
        counts[version] = counts.get(version, 0) + 1
        size_bytes = len(frame)
        figures.request_bytes += size_bytes
        own = connection.figures
        own.request_count += 1
        own.request_bytes += size_bytes
        ended = self.now()
        served = own.served = ServedRequest(self, figures, connection, key, version, began, ended)
        if reply is None or isinstance(reply, list):
            figures.seconds.add(ended - began)
            return reply
        later = reply.chunks if isinstance(reply, HeldReply) else reply
        figures.pending_count += 1
        future = later if isinstance(later, PromptFuture) else asyncio.ensure_future(later)
        future.add_done_callback(served.waited)
        if not isinstance(reply, HeldReply):
            return future
        reply.chunks = future
        return reply

    def persisted(self, *, fsync_s: float, replicated_s: float | None) -> None:
        """Notes the waits of a Produce request; `replicated_s` is None where no follower is in sync."""
        figures = self._of(_PRODUCE)
        figures.fsync.add(fsync_s)
        if replicated_s is not None:
            figures.replicated.add(replicated_s)

    def throttled(self, api_key: int, seconds: float) -> None:
        """Notes that a quota muted a client for so long."""
        self._of(api_key).throttled.add(seconds)

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
        times = [
            gauge(f"{_BEAN}{name}", f"Milliseconds {what}, of about the last minute.")
            for name, what in _TIMES.items()
        ]
        counts = [
            gauge(f"{_BEAN}{name}_count", f"How many were measured of the milliseconds {what}.")
            for name, what in _TIMES.items()
        ]
        seconds = histogram("odradek_request_seconds", "Times from a request's frame to its answer.")
        stages = histogram("odradek_request_stage_seconds", "Times of requests, by stage.")
        pending = gauge("odradek_requests_pending", "Requests whose answers are not there yet.")
        for name, all_figures in self._named():
            for version in sorted({version for figures in all_figures for version in figures.counts}):
                count = sum(figures.counts.get(version, 0) for figures in all_figures)
                requests.add(count, labels(request=name, version=version))
            for code in sorted({code for figures in all_figures for code in figures.errors}):
                count = sum(figures.errors.get(code, 0) for figures in all_figures)
                errors.add(count, labels(request=name, error=ErrorCode.of(code).name))
            text = labels(request=name)
            sizes.add(sum(figures.request_bytes for figures in all_figures), text)
            pending.add(sum(figures.pending_count for figures in all_figures), text)
            sums = _summed([figures.times for figures in all_figures])
            seconds.add(sums[0], text)
            for stage, part in zip(Stage, _summed([figures.stages for figures in all_figures]), strict=True):
                if part.count:
                    stages.add(part, labels(request=name, stage=stage.value))
            for family, part in zip(counts, sums, strict=True):
                family.add(part.count, text)
            lately = zip(*[figures.lately(now) for figures in all_figures], strict=True)
            for family, parts in zip(times, lately, strict=True):
                part = _sum(parts)
                for spelled, quantile in _QUANTILES.items():
                    family.add(quantile_of(part, quantile) * 1_000, labels(request=name, quantile=spelled))
        slow = counter("odradek_slow_requests", "Requests that took longer than odradek.slow.request.ms.")
        slow.add(self.slow.count)
        totals = [requests, errors, *times, *counts, sizes, pending, slow]
        return [*totals, seconds, stages, *self._throttling(), self._purgatory()]

    def _throttling(self) -> list[Family]:
        """Returns how long, and how often, quotas muted clients."""
        seconds = histogram("odradek_request_throttle_seconds", "Times for which quotas muted clients.")
        counts = gauge(f"{_BEAN}throttletimems_count", "Answers after which a quota muted the client.")
        for name, all_figures in self._named():
            muted = _sum([figures.throttled for figures in all_figures])
            seconds.add(muted, labels(request=name))
            counts.add(muted.count, labels(request=name))
        return [counts, seconds]

    def _purgatory(self) -> Family:
        """Requests that wait, by the names of Kafka's delayed operations."""
        family = gauge(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait for their condition."
        )
        for name, keys in _DELAYED.items():
            count = sum(self._apis[key].pending_count for key in keys if key in self._apis)
            family.add(count, labels(delayedOperation=name))
        return family

    def _named(self) -> list[tuple[str, list[ApiFigures]]]:
        """Returns the figures by Kafka's names. Fetch is the sum of what consumers and followers fetch."""
        named = [
            (_NAMES.get(key) or APIS[key].name, [figures]) for key, figures in sorted(self._apis.items())
        ]
        fetches = [self._apis[key] for key in (_FETCH, _FOLLOWERS_FETCH) if key in self._apis]
        return [*named, (APIS[_FETCH].name, fetches)] if fetches else named


def quantile_of(times: Histogram, quantile: float) -> float:
    """Returns a quantile in seconds, interpolated within its bucket; 0 without a value. The last bound
    includes all larger values."""
    wanted = quantile * times.count
    below, bound = 0.0, 0.0
    for upper, count in zip(times.bounds, times.counts, strict=False):
        if count and below + count >= wanted:
            return bound + (upper - bound) * max(wanted - below, 0.0) / count
        below, bound = below + count, upper
    return bound if times.count else 0.0


def _summed(all_times: list[list[Histogram]]) -> list[Histogram]:
    """Returns the sums of several APIs' times, one for each position."""
    return [_sum(parts) for parts in zip(*all_times, strict=True)]


def _sum(histograms: Iterable[Histogram]) -> Histogram:
    total = Histogram()
    for part in histograms:
        total.counts = [mine + other for mine, other in zip(total.counts, part.counts, strict=True)]
        total.total += part.total
    return total
