"""The metrics listener of a program that is no broker: `/metrics` and `/livez` on a thread of its own.

The program hands over a function that returns its families. It is called on the listener's thread, so it only reads what
another thread has finished: an immutable value that is replaced as a whole.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from odradek.config.files import secret_files
from odradek.config.listening.listeners import parse_host_port
from odradek.model.errors import ConfigError
from odradek.net.page_access import PageTokens
from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeServer
from odradek.runtime.real_clock import SystemClock
from odradek.telemetry import events
from odradek.telemetry.exposition import chosen_type, written
from odradek.telemetry.metrics import Family, bounded
from odradek.telemetry.process_metrics import process_families

_strangers = events.caused_by_peers("net")
_SERIES_MAX: Final = 20_000
_INDEX: Final = b"Odradek. /metrics (Prometheus, OpenMetrics), /livez\n"
_NO_TOKEN: Final = b"this page needs a token: send Authorization: Bearer TOKEN\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTerms:
    """The address of a metrics listener, and who may read it."""

    host: str
    port: int
    token_file: str | None = None
    """A file with a token on each line; None: no one is asked."""
    certificate: str | None = None
    key: str | None = None
    """PEM files for https; None: plain HTTP. The certificate's file may have the key, too."""

    @classmethod
    def of(
        cls,
        address: str,
        *,
        token_file: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
    ) -> Self:
        """Parses HOST:PORT. ConfigError for what is no address, and for a key without a certificate."""
        host, port = parse_host_port(address)
        if key is not None and certificate is None:
            raise ConfigError("a key of the metrics listener needs its certificate, too")
        return cls(host=host, port=port, token_file=token_file, certificate=certificate, key=key)

    def tokens(self) -> PageTokens | None:
        """Reads the tokens. ConfigError for a file that cannot be used, or that others may read."""
        if self.token_file is None:
            return None
        return PageTokens(self.token_file, others_may_read=False, now=SystemClock().monotonic)

    def context(self) -> ssl.SSLContext | None:
        """Reads certificate and key; None for plain HTTP. ConfigError for files that cannot be used."""
        if self.certificate is None:
            return None
        key = self.key or self.certificate
        secret_files.read_secret_file("the metrics listener's key", key, others_may_read=False)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"the metrics listener's certificate {self.certificate!r} cannot be used: {error}"
            ) from None
        return context


class MetricsPage:
    """A context manager that serves from `__enter__` on. Port 0 is any port. ListenError when the address cannot be had."""

    def __init__(self, terms: PageTerms, families: Callable[[], list[Family]]) -> None:
        """ConfigError for tokens or certificates that cannot be used."""
        self._terms = terms
        self._families = families
        self._tokens = terms.tokens()
        context = terms.context()
        self._server = ScrapeServer(self._page, tls=None if context is None else lambda: context)
        self._scheme = "http" if context is None else "https"

    @property
    def address(self) -> str:
        """HOST:PORT, once it serves."""
        host, port = self._server.addresses[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def url(self) -> str:
        """The address of `/metrics`, once it serves."""
        return f"{self._scheme}://{self.address}/metrics"

    def __enter__(self) -> Self:
        try:
            self._server.open(self._terms.host, self._terms.port)
            self._server.start()
        except BaseException:
            self._server.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()

    async def _page(self, request: PageRequest) -> HttpPage:
        if request.path == "/livez":
            return HttpPage(body=b"alive\n")
        if self._tokens is not None and not self._tokens.allow(request.headers.get("authorization", "")):
            _strangers.warning("metrics_request_refused", peer=request.peer, path=request.path)
            return HttpPage(status=401, body=_NO_TOKEN)
        if request.path != "/metrics":
            return HttpPage(status=200 if request.path == "/" else 404, body=_INDEX)
        content_type = chosen_type(request.headers.get("accept", ""))
        shown = bounded([*self._families(), *process_families()], _SERIES_MAX)
        return HttpPage(body=written(shown, content_type), content_type=content_type)
