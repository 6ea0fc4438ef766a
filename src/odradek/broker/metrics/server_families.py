"""Connections, memory and the event loop of a broker, and what waits in it. Read on the event loop, in turns."""

from __future__ import annotations

import time
from collections import Counter, deque
from heapq import nlargest
from operator import itemgetter
from typing import Final

from odradek.broker.requests.context import BrokerContext
from odradek.net.server import Server
from odradek.runtime.turns import Turn
from odradek.telemetry.metrics import Family, Histogram, counter, gauge, histogram, labels

_CLIENTS_SHOWN_MAX: Final = 10
"""Clients that use the most have series of their own; all others have none."""
_CLIENT_ID_MAX: Final = 255
"""The characters of a client id that a label has; clients whose ids begin alike share their series."""
_WINDOW_S: Final = 60.0
_SNAPSHOT_EVERY_S: Final = 10.0
_SOCKETS: Final = "kafka_server_socket_server_metrics_"


class IdleShare:
    """The share of about the last minute in which the event loop's thread used no CPU. Kept between scrapes."""

    def __init__(self) -> None:
        self._snapshots: deque[tuple[float, float]] = deque()

    def lately(self, now: float, cpu_s: float) -> float:
        """Returns the share of time, lately, in which the loop's thread used no CPU. `cpu_s`: what the thread ever used, in
        seconds."""
        snapshots = self._snapshots
        while len(snapshots) > 1 and snapshots[1][0] <= now - _WINDOW_S:
            snapshots.popleft()
        if not snapshots or now - snapshots[-1][0] >= _SNAPSHOT_EVERY_S:
            snapshots.append((now, cpu_s))
        began, used_s = snapshots[0]
        if now <= began:
            return 1.0
        return min(max(1.0 - (cpu_s - used_s) / (now - began), 0.0), 1.0)

    def families(self, now: float) -> list[Family]:
        share = self.lately(now, time.thread_time())
        families = []
        for name in (
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        ):
            family = gauge(name, "Share of about the last minute in which the event loop was idle, 0 to 1.")
            family.add(share)
            families.append(family)
        return families


class ServerFamilies:
    """The metric families of connections, memory and the event loop. `collect` fills them: it reads every connection."""

    def __init__(self, server: Server, broker: BrokerContext) -> None:
        self._server = server
        self._broker = broker
        self._by_listener: Counter[str] = Counter(dict.fromkeys(server.opened, 0))
        self._waiting_count = 0
        self._clients: dict[str, list[float]] = {}
        """Requests, bytes in and out, seconds of the event loop, bytes of requests and responses in flight; by client id."""

    async def collect(self, turn: Turn) -> None:
        for connection in list(self._server.connections):
            await turn.step()
            self._by_listener[connection.listener.name] += 1
            figures = connection.figures
            load = connection.load
            self._waiting_count += load.waiting_count
            if figures.request_count or load.request_bytes or load.response_bytes:
                sums = self._clients.setdefault(figures.client_id[:_CLIENT_ID_MAX], [0, 0, 0, 0.0, 0, 0])
                sums[0] += figures.request_count
                sums[1] += figures.request_bytes
                sums[2] += connection.sent_bytes
                sums[3] += figures.handled_s
                sums[4] += load.request_bytes
                sums[5] += load.response_bytes

    def families(self) -> list[Family]:
        return [*self._connections(), *self._memory(), *self._largest_clients()]

    def _connections(self) -> list[Family]:
        server = self._server
        open_now = gauge(f"{_SOCKETS}connection_count", "Open connections, by listener.")
        opened = counter(f"{_SOCKETS}connection_creation", "Connections that were opened, by listener.")
        closed = counter(f"{_SOCKETS}connection_close", "Connections that were closed, by listener.")
        for family, counts in (
            (open_now, self._by_listener),
            (opened, server.opened),
            (closed, server.closed),
        ):
            for listener in sorted(server.opened):
                family.add(counts[listener], labels(listener=listener))
        return [open_now, opened, closed, *self._broker.logins.families(server.failed_handshakes)]

    def _memory(self) -> list[Family]:
        server = self._server
        figures = []
        for name, meaning, value in (
            (
                "kafka_network_requestchannel_requestqueuesize",
                "Requests that were received and wait for their turn.",
                self._waiting_count,
            ),
            (
                "kafka_network_requestchannel_responsequeuesize",
                "Connections whose peers have not read all answers.",
                server.answers.count,
            ),
            (
                "odradek_request_memory_bytes",
                "Bytes of large requests that are in memory.",
                server.requests.held_bytes,
            ),
            (
                "odradek_response_memory_bytes",
                "Bytes of answers that clients have not read yet.",
                server.answers.held_bytes,
            ),
            (
                "odradek_requests_waiting_for_memory",
                "Large requests that wait for memory.",
                server.requests.waiting_count,
            ),
        ):
            family = gauge(name, meaning)
            family.add(value)
            figures.append(family)
        return figures

    def _largest_clients(self) -> list[Family]:
        """Returns the clients with the most bytes, requests, time of the event loop or bytes in flight, over connections that
        are open now."""
        requests = gauge("odradek_client_requests", "Requests of the largest clients, by open connections.")
        moved = gauge("odradek_client_bytes", "Bytes of the largest clients, over their open connections.")
        busy = gauge(
            "odradek_client_busy_seconds", "Seconds for which the largest clients kept the event loop busy."
        )
        in_flight = gauge(
            "odradek_client_in_flight_bytes",
            "Bytes of the largest clients' requests that are not answered, and of responses that they have not taken.",
        )
        largest: dict[str, list[float]] = {}
        for weight in (_bytes_of, itemgetter(0), itemgetter(3), _in_flight):
            ranked = nlargest(_CLIENTS_SHOWN_MAX, self._clients.items(), key=lambda client: weight(client[1]))
            largest.update(ranked)
        for client_id, (count, bytes_in, bytes_out, busy_s, received, unsent) in largest.items():
            text = labels(client_id=client_id)
            requests.add(count, text)
            moved.add(bytes_in, labels(client_id=client_id, direction="in"))
            moved.add(bytes_out, labels(client_id=client_id, direction="out"))
            busy.add(busy_s, text)
            in_flight.add(received, labels(client_id=client_id, direction="in"))
            in_flight.add(unsent, labels(client_id=client_id, direction="out"))
        clients = gauge("odradek_clients", "Different client ids of open connections.")
        clients.add(len(self._clients))
        return [clients, requests, moved, busy, in_flight]


def _bytes_of(sums: list[float]) -> float:
    return sums[1] + sums[2]


def _in_flight(sums: list[float]) -> float:
    return sums[4] + sums[5]


def of_flushes(broker: BrokerContext) -> list[Family]:
    """Returns how long flushes of logs took: by directory, and as Kafka's LogFlushStats."""
    seconds = histogram("odradek_log_flush_seconds", "How long flushes of logs took, by data directory.")
    total = Histogram()
    for directory in broker.replicas.directories.all():
        times = directory.sync_seconds.copy()
        seconds.add(times, labels(directory=directory.path))
        total.counts = [mine + other for mine, other in zip(total.counts, times.counts, strict=True)]
        total.total += times.total
    count = gauge("kafka_log_logflushstats_logflushrateandtimems_count", "Flushes of logs.")
    count.add(total.count)
    mean = gauge("kafka_log_logflushstats_logflushrateandtimems_mean", "Mean milliseconds of a flush.")
    mean.add(total.total * 1_000 / total.count if total.count else 0.0)
    under_way = gauge("odradek_log_flushes_under_way", "Flushes that have not ended yet.")
    under_way.add(len(broker.replicas.flusher.under_way))
    return [count, mean, under_way, seconds]
