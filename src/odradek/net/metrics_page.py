"""The metrics listener of a program that is no broker: `/metrics` and `/livez` on a thread of its own.

The program hands over a function that returns its families. It is called on the listener's thread, so it only reads what
another thread has finished: an immutable value that is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeServer
from odradek.telemetry.exposition import chosen_type, written
from odradek.telemetry.metrics import Family, bounded
from odradek.telemetry.process_metrics import process_families

_SERIES_MAX: Final = 20_000
_INDEX: Final = b"Odradek. /metrics (Prometheus, OpenMetrics), /livez\n"


class MetricsPage:
    """A context manager that serves from `__enter__` on. Port 0 is any port. ListenError when the address cannot be had."""

    def __init__(self, host: str, port: int, families: Callable[[], list[Family]]) -> None:
        self._host, self._port = host, port
        self._families = families
        self._server = ScrapeServer(self._page)

    @property
    def address(self) -> str:
        """HOST:PORT, once it serves."""
        host, port = self._server.addresses[0]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def __enter__(self) -> Self:
        try:
            self._server.open(self._host, self._port)
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
        if request.path != "/metrics":
            return HttpPage(status=200 if request.path == "/" else 404, body=_INDEX)
        content_type = chosen_type(request.headers.get("accept", ""))
        shown = bounded([*self._families(), *process_families()], _SERIES_MAX)
        return HttpPage(body=written(shown, content_type), content_type=content_type)
