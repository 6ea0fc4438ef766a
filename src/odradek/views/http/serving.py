"""Serves views of several topics from one process, at one address."""

from __future__ import annotations

import asyncio
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import uvicorn

from odradek.config.listening.listeners import format_address
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ConfigError, ErrorValue
from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.views.aio import AsyncTableView
from odradek.views.http.application import DEFAULT_HTTP_LIMITS, HttpLimits, application
from odradek.views.view_families import ViewSnapshots

DEFAULT_PORT: Final = 8085
CONNECTIONS_MAX: Final = 512
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """One topic, and the formats in which it is read."""

    topic: str
    key: str = "string"
    value: str = "json"
    windows: str | None = None


async def serve(
    bootstrap_servers: str,
    tables: tuple[ServedTable, ...],
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    directory: Path | None = None,
    limits: HttpLimits = DEFAULT_HTTP_LIMITS,
    settings: ClientSettings | None = None,
    metrics: PageTerms | None = None,
    on_metrics: Callable[[str], object] = lambda url: None,
    on_ready: Callable[[str], object] = lambda address: None,
    ended: asyncio.Event | None = None,
) -> None:
    """Serves tables until SIGINT or SIGTERM, or until `ended` is set. `directory`: each table has one of its name there; None:
    in memory. `metrics`: the metrics listener; None: there is none. `on_metrics(URL)` and `on_ready(URL)` are called when they
    listen; tables may still be restored then. Raises ConfigError or ListenError when an address is not available.
    """
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(_listening(host, port))
        views: dict[str, AsyncTableView] = {}
        for table in tables:
            views[table.topic] = await stack.enter_async_context(
                await AsyncTableView.open(
                    bootstrap_servers,
                    table.topic,
                    key=table.key,
                    value=table.value,
                    windows=table.windows,
                    directory=None if directory is None else directory / table.topic,
                    wait=False,
                    **(settings or {}),
                )
            )
        if metrics is not None:
            snapshots = ViewSnapshots(views)
            on_metrics(stack.enter_context(MetricsPage(metrics, snapshots.families)).url)
            stack.callback(loop.create_task(snapshots.follow(), name="odradek-view-metrics").cancel)
        address = listening.getsockname()
        hosts = _LOOPBACK if address[0] in ("127.0.0.1", "::1") else None
        server = _Server(
            uvicorn.Config(
                application(views, limits, hosts),
                http="h11",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_graceful_shutdown=5,
            ),
            partial(on_ready, f"http://{format_address(*address[:2])}"),
        )
        ending = loop.create_task(_end(server, ended), name="odradek-tables-end")
        try:
            await server.serve(sockets=[listening])
        finally:
            ending.cancel()


async def _end(server: uvicorn.Server, ended: asyncio.Event | None) -> None:
    if ended is not None:
        await ended.wait()
        server.should_exit = True


class ServingThread:
    """The HTTP server of tables, on a thread of its own.

    `serve` on a thread of its own, for a program that does other things, too. `address` is its URL.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        tables: tuple[ServedTable, ...],
        *,
        host: str,
        port: int,
        settings: ClientSettings,
    ) -> None:
        """Return when it listens. What `serve` raises, as an OdradekError."""
        self._ready: Final[queue.SimpleQueue[str | ErrorValue[Exception]]] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread: Final = threading.Thread(
            target=asyncio.run,
            args=(self._serve(bootstrap_servers, tables, host, port, settings),),
            name="odradek-tables",
            daemon=True,
        )
        self._thread.start()
        started = self._ready.get()
        if isinstance(started, ErrorValue):
            self._thread.join()
            raise started.exception()
        self.address: Final = started

    async def _serve(
        self,
        bootstrap_servers: str,
        tables: tuple[ServedTable, ...],
        host: str,
        port: int,
        settings: ClientSettings,
    ) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            await serve(
                bootstrap_servers,
                tables,
                host=host,
                port=port,
                settings=settings,
                on_ready=self._ready.put,
                ended=self._ended,
            )
        except Exception as error:  # noqa: BLE001 - the root of a thread: its maker raises it
            self._ready.put(ErrorValue.of(error))

    def close(self) -> None:
        """Answer what was asked, and end. Idempotent."""
        if self._thread.is_alive():
            assert self._loop is not None
            assert self._ended is not None
            with suppress(RuntimeError):  # it is ending by itself
                self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()


class _Server(uvicorn.Server):
    """An HTTP server that returns at a signal: uvicorn's own would raise the signal again, and the views would not be
    closed."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Reports that the server is ready once a signal ends it as it should."""
        await super().startup(sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        wanted = (
            (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        )
        for number in wanted:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in wanted:
                loop.remove_signal_handler(number)


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY only where the protocol is named: without it a second small write waits 40 ms
        listening = socket.socket(family[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(family[4])
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    return listening
