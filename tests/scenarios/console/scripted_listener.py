"""A metrics listener whose pages a test writes, also what no broker would."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from odradek.console.listeners.reading import ListenerTerms
from odradek.net.listener_pages import ListenerAccess, ListenerAddress
from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeServer
from odradek.telemetry.exposition import written
from odradek.telemetry.metrics import gauge, labels

OPEN = ListenerAccess()


class ScriptedListener:
    """Serves what its fields say; `asked` has the paths of all requests."""

    def __init__(self, node_id: int = 1) -> None:
        self.node_id = node_id
        self.clients: dict[str, tuple[float, float, float, float]] = {}
        """Bytes in, bytes out, requests and seconds by client id. `growth` is added at each scrape."""
        self.growth: dict[str, tuple[float, float, float, float]] = {}
        self.in_flight: dict[str, tuple[float, float]] = {}
        """Bytes of requests and of responses by client id."""
        self.certificates: dict[str, float] = {}
        self.tokens: dict[str, float] = {}
        self.healing_due: dict[str, float] = {}
        self.healing_partitions = 0
        self.slow: Any = []
        self.token = ""
        self.asked: list[str] = []
        self.server = ScrapeServer(self._page)
        self.address = ListenerAddress("127.0.0.1", self.server.open("", 0))

    def terms(self, access: ListenerAccess = OPEN, **more: Any) -> ListenerTerms:
        return ListenerTerms(addresses=(self.address,), access=access, **more)

    async def _page(self, request: PageRequest) -> HttpPage:
        self.asked.append(request.path)
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return HttpPage(status=401, body=b"this page needs a token\n")
        if request.path == "/info":
            return HttpPage(body=json.dumps({"node_id": self.node_id}).encode())
        if request.path == "/slow":
            return HttpPage(body=json.dumps(self.slow).encode())
        return HttpPage(body=self._metrics())

    def _metrics(self) -> bytes:
        moved, requests, busy = (
            gauge(f"odradek_client_{name}", "?") for name in ("bytes", "requests", "busy_seconds")
        )
        for client, figures in self.clients.items():
            moved.add(figures[0], labels(client_id=client, direction="in"))
            moved.add(figures[1], labels(client_id=client, direction="out"))
            requests.add(figures[2], labels(client_id=client))
            busy.add(figures[3], labels(client_id=client))
            more = self.growth.get(client, (0.0,) * 4)
            self.clients[client] = tuple(map(sum, zip(figures, more, strict=True)))  # type: ignore[assignment]
        held = gauge("odradek_client_in_flight_bytes", "?")
        for client, (received, unsent) in self.in_flight.items():
            held.add(received, labels(client_id=client, direction="in"))
            held.add(unsent, labels(client_id=client, direction="out"))
        ends = gauge("odradek_certificate_expires_seconds", "?")
        for listener, left_s in self.certificates.items():
            ends.add(left_s, labels(listener=listener))
        tokens = gauge("odradek_delegation_token_expires_seconds", "?")
        for token_id, left_s in self.tokens.items():
            tokens.add(left_s, labels(owner="User:ann", token_id=token_id))
        idle = gauge("kafka_network_socketserver_networkprocessoravgidle_percent", "?")
        idle.add(0.25)
        due = gauge("odradek_controller_healing_due_seconds", "?")
        for broker, due_s in self.healing_due.items():
            due.add(due_s, labels(broker=broker))
        healing = gauge("odradek_controller_healing_partitions", "?")
        healing.add(self.healing_partitions)
        return written([moved, requests, busy, ends, tokens, idle, held, due, healing])


@contextmanager
def scripted_listener(node_id: int = 1) -> Iterator[ScriptedListener]:
    listener = ScriptedListener(node_id)
    listener.server.start()
    try:
        yield listener
    finally:
        listener.server.close()


def slow_request(**changes: Any) -> Mapping[str, Any]:
    """Returns a slow request as a broker describes it."""
    return {
        "at_ms": 1_700_000_000_000,
        "request": "Produce",
        "version": 11,
        "client_id": "shop",
        "peer": "10.0.0.7:4711",
        "total_ms": 1300.0,
        "queued_ms": 1.0,
        "handled_ms": 2.0,
        "waited_ms": 1290.0,
        "response_queued_ms": 3.0,
        "sent_ms": 4.0,
        **changes,
    }
