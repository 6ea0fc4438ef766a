"""The console as a server: one address, until a signal ends it."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import uvicorn

from odradek.console.all_pages import PAGES
from odradek.console.web.application import application
from odradek.console.web.console import Console, ConsoleOptions
from odradek.console.web.gate import LOOPBACK
from odradek.model.errors import ConfigError

CONNECTIONS_MAX: Final = 512
HEAD_BYTES_MAX: Final = 64 << 10
IDLE_S: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAddress:
    """The address on which the console listens, and its certificate where it speaks TLS."""

    host: str
    port: int
    certificate: str | None = None
    key: str | None = None


async def serve_console(
    options: ConsoleOptions,
    address: ConsoleAddress,
    *,
    on_ready: Callable[[str], object] = lambda url: None,
    ended: asyncio.Event | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, or until `ended` is set. ConfigError when the address is not available."""
    with _listening(address) as listening:
        console = Console(options)
        host, port = listening.getsockname()[:2]
        scheme = "https" if address.certificate else "http"
        url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
        server = _ConsoleServer(_config(console, address), console.ended, partial(on_ready, url))
        helpers = [
            asyncio.get_running_loop().create_task(console.sweep(), name="odradek-console-sweep"),
            asyncio.get_running_loop().create_task(_end(server, ended), name="odradek-console-end"),
        ]
        try:
            await server.serve(sockets=[listening])
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await console.close()


def _config(console: Console, address: ConsoleAddress) -> uvicorn.Config:
    try:
        return uvicorn.Config(
            application(console, PAGES),
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=1,
            ssl_certfile=address.certificate,
            ssl_keyfile=address.key,
        )
    except OSError as error:
        raise ConfigError(
            f"--tls-certificate or --tls-key cannot be read: {error.strerror or error}"
        ) from error


async def _end(server: uvicorn.Server, ended: asyncio.Event | None) -> None:
    if ended is not None:
        await ended.wait()
        server.should_exit = True


class _ConsoleServer(uvicorn.Server):
    """An HTTP server that returns at a signal: uvicorn's own raises the signal again, and models would not be closed."""

    def __init__(self, config: uvicorn.Config, ended: asyncio.Event, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._streams_end = ended
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Reports that the server is ready once a signal ends it as it should."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the event streams first: uvicorn cancels what is open after a second, and logs a traceback for each."""
        self._streams_end.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _listening(address: ConsoleAddress) -> socket.socket:
    try:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        # asyncio sets TCP_NODELAY only where the protocol is named
        listening = socket.socket(family[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(family[4])
            listening.listen(128)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        line = f"cannot listen on {address.host}:{address.port}: {error.strerror or error}"
        raise ConfigError(line) from error
    return listening


def own_hosts(host: str, more: tuple[str, ...]) -> frozenset[str] | None:
    """Returns the names that a Host header may have. A console that listens on every address needs them named."""
    names = frozenset(name.lower() for name in more)
    if host in ("127.0.0.1", "localhost", "::1"):
        return names | LOOPBACK
    if host in ("", "0.0.0.0", "::"):
        return names or None
    return names | {f"[{host}]" if ":" in host else host.lower()}
