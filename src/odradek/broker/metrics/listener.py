"""The pages of `metrics.listeners`, and the thread that serves them.

A page asks the event loop for values, and makes its text on the listener's thread. Scrapes that overlap share one pass.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, TypeVar

from odradek.broker.metrics.collection import MeasuredBroker, MetricsCollection
from odradek.broker.metrics.readiness import findings_of, report
from odradek.config.broker import BrokerConfig
from odradek.config.listening.listeners import format_address, parse_host_port
from odradek.model.errors import ConfigError
from odradek.model.version import __version__
from odradek.net.page_access import PageTokens
from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeLimits, ScrapeServer
from odradek.security.tls.listener_tls import ListenerCertificates
from odradek.telemetry import events
from odradek.telemetry.exposition import chosen_type, written
from odradek.telemetry.metrics import Family, bounded, counter, gauge
from odradek.telemetry.process_metrics import process_families

T = TypeVar("T")

_log = events.get("broker")
_strangers = events.caused_by_peers("broker")
_OK: Final = 200
_OPEN_PAGES: Final = frozenset({"/livez", "/readyz"})
"""Probes of orchestrators rarely send tokens."""
_LOOP_SECONDS_MAX: Final = 10.0
"""The event loop answers a page within this time, or the page says that it does not."""
_INDEX: Final = b"Odradek. /metrics (Prometheus, OpenMetrics), /livez, /readyz, /info, /slow, /clients\n"


class MetricsListener:
    """Serves from `start` to `close`, also before the broker has started. Both are called on the broker's loop."""

    def __init__(self, broker: MeasuredBroker, config: BrokerConfig) -> None:
        """ConfigError for an address that is none, tokens that cannot be read, or a listener without TLS."""
        self._broker = broker
        self._config = config
        self._loop = asyncio.get_running_loop()
        self._tokens = _tokens_of(config, self._loop.time)
        self._certificates = _certificates_of(config)
        self._unauthorized_count = 0
        self._server = ScrapeServer(
            self._page,
            ScrapeLimits(connections_max=config.metrics.connections_max),
            tls=None if self._certificates is None else self._newest_context,
        )
        self._addresses = [_parsed(text) for text in config.metrics.listeners]
        self._pages: Final[dict[str, Callable[[PageRequest], Awaitable[HttpPage]]]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/info": self._info,
            "/slow": self._slow,
            "/clients": self._clients,
        }
        self._collection = MetricsCollection(broker)
        self._under_way: dict[str, asyncio.Task[HttpPage]] = {}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return list(self._server.addresses)

    def start(self) -> None:
        """Listens on all addresses. Raises ListenError when one cannot be used."""
        try:
            for host, port in self._addresses:
                self._server.open(host, port)
        except BaseException:
            self._server.close()
            raise
        if self._addresses:
            self._server.start()
            for host, port in self.addresses:
                _log.info("metrics_listener_opened", address=format_address(host, port))

    def close(self) -> None:
        self._server.close()

    # -- on the listener's thread

    async def _page(self, request: PageRequest) -> HttpPage:
        make = self._pages.get(request.path)
        if self._tokens is not None and not self._tokens.allow(request.headers.get("authorization", "")):
            if request.path not in _OPEN_PAGES:
                return self._unauthorized(request)
            make = self._open_readyz if request.path == "/readyz" else make
        if make is None:
            return HttpPage(status=404, body=_INDEX)
        try:
            return await make(request)
        except TimeoutError:
            reason = f"the broker's event loop did not answer within {_LOOP_SECONDS_MAX:g} s\n"
            return HttpPage(status=503, body=reason.encode())

    def _unauthorized(self, request: PageRequest) -> HttpPage:
        self._unauthorized_count += 1
        _strangers.warning("metrics_request_refused", peer=request.peer, path=request.path)
        self._loop.call_soon_threadsafe(self._note_refused, request)
        reason = "this page needs a token: send Authorization: Bearer TOKEN (odradek.metrics.token.file)\n"
        return HttpPage(status=401, body=reason.encode())

    def _newest_context(self) -> ssl.SSLContext:
        assert self._certificates is not None
        self._certificates.reload_if_changed()
        return self._certificates.context

    async def _open_readyz(self, request: PageRequest) -> HttpPage:
        """Returns the status alone: the reasons, which name topics and directories, need a token."""
        page = await self._readyz(request)
        return HttpPage(status=page.status, body=b"ready\n" if page.status == _OK else b"not ready\n")

    async def _index(self, _request: PageRequest) -> HttpPage:
        return HttpPage(body=_INDEX)

    async def _metrics(self, request: PageRequest) -> HttpPage:
        content_type = chosen_type(request.headers.get("accept", ""))
        task = self._under_way.get(content_type)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._scraped(content_type))
            self._under_way[content_type] = task
            task.add_done_callback(lambda _: self._under_way.pop(content_type))
        return await asyncio.shield(task)  # one scraper that leaves takes nothing from the others

    async def _scraped(self, content_type: str) -> HttpPage:
        began = time.perf_counter()
        families = await self._on_loop(self._collected)
        if families is None:
            return _starting()
        families += process_families()
        refused = gauge(
            "odradek_metrics_connections_refused", "Connections to this listener beyond its bound."
        )
        refused.add(self._server.refused_count)
        unauthorized = counter(
            "odradek_metrics_requests_refused", "Requests to this listener that showed no valid token."
        )
        unauthorized.add(self._unauthorized_count)
        duration = gauge("odradek_metrics_collection_seconds", "How long it took to collect these metrics.")
        duration.add(time.perf_counter() - began)
        shown = bounded([refused, unauthorized, duration, *families], self._config.metrics.series_max)
        return HttpPage(body=written(shown, content_type), content_type=content_type)

    async def _livez(self, _request: PageRequest) -> HttpPage:
        """The event loop answers: the process lives."""
        await self._on_loop(_nothing)
        return HttpPage(body=b"alive\n")

    async def _readyz(self, _request: PageRequest) -> HttpPage:
        readiness = await self._on_loop(self._findings)
        if readiness is None:
            return _starting()
        is_ready, text = readiness
        return HttpPage(status=200 if is_ready else 503, body=text.encode())

    async def _info(self, _request: PageRequest) -> HttpPage:
        described = await self._on_loop(self._described)
        return HttpPage(
            body=json.dumps(described, indent=2).encode() + b"\n", content_type="application/json"
        )

    async def _slow(self, _request: PageRequest) -> HttpPage:
        requests = await self._on_loop(self._slow_requests)
        return HttpPage(body=json.dumps(requests).encode() + b"\n", content_type="application/json")

    async def _clients(self, _request: PageRequest) -> HttpPage:
        clients = await self._on_loop(self._described_clients)
        return HttpPage(body=json.dumps(clients).encode() + b"\n", content_type="application/json")

    async def _on_loop(self, ask: Callable[[], Coroutine[object, None, T]]) -> T:
        """Runs the coroutine on the broker's loop and returns its value. TimeoutError when the loop takes too long."""
        pending = asyncio.run_coroutine_threadsafe(ask(), self._loop)
        try:
            async with asyncio.timeout(_LOOP_SECONDS_MAX):
                return await asyncio.wrap_future(pending)
        finally:
            pending.cancel()

    # -- on the broker's loop

    def _note_refused(self, request: PageRequest) -> None:
        if self._broker.is_serving and (audit := self._broker.context.audit) is not None:
            audit.page_refused(request.peer, request.path)

    async def _collected(self) -> list[Family] | None:
        return await self._collection.collected() if self._broker.is_serving else None

    async def _findings(self) -> tuple[bool, str] | None:
        if not self._broker.is_serving:
            return None
        return report(await findings_of(self._broker.context, self._broker.turns.begin()))

    async def _slow_requests(self) -> list[dict[str, object]]:
        return self._broker.context.requests.slow.described() if self._broker.is_serving else []

    async def _described_clients(self) -> list[dict[str, object]]:
        if not self._broker.is_serving:
            return []
        return await self._broker.turns.begin().drive(self._broker.context.client_telemetry.described())

    async def _described(self) -> dict[str, object]:
        described: dict[str, object] = {
            "version": __version__,
            "node_id": self._config.server.node_id,
            "rack": self._config.server.broker_rack,
            "is_serving": self._broker.is_serving,
        }
        if self._broker.is_serving:
            context = self._broker.context
            described |= {
                "cluster_id": context.image.cluster_id,
                "controller_id": context.cluster.controller_id,
                "listeners": [format_address(host, port) for host, port in self._broker.addresses],
                "log_dirs": [directory.path for directory in context.replicas.directories.all()],
            }
        return described


async def _nothing() -> None:
    """Runs when the loop comes to it."""


def _starting() -> HttpPage:
    return HttpPage(status=503, body=b"[failed] broker: it starts or stops\nnot ready\n")


def _parsed(text: str) -> tuple[str, int]:
    try:
        return parse_host_port(text)
    except ConfigError as error:
        raise ConfigError(f"metrics.listeners={text!r} is not allowed: expected HOST:PORT") from error


def _tokens_of(config: BrokerConfig, now: Callable[[], float]) -> PageTokens | None:
    path = config.metrics.token_file
    return PageTokens(path, others_may_read=config.ssl.secrets_others_may_read, now=now) if path else None


def _certificates_of(config: BrokerConfig) -> ListenerCertificates | None:
    name = config.metrics.tls_listener
    if not name:
        return None
    security = config.security.get(name)
    if security is None or not security.uses_tls:
        listeners = sorted(known for known, secured in config.security.items() if secured.uses_tls)
        raise ConfigError(
            f"odradek.metrics.tls.listener={name!r} is not allowed: expected a listener with TLS, such as "
            f"{', '.join(listeners) or 'SSL (listeners has none)'}"
        )
    return ListenerCertificates("metrics", security)
