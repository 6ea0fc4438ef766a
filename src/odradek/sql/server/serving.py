"""HTTP/1.1 and HTTP/2, in plain text or with TLS: hypercorn on a socket of ours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hypercorn.asyncio
import hypercorn.config
from starlette.types import ASGIApp

from odradek.config.files import secret_files
from odradek.model.errors import ConfigError
from odradek.sql.server.connections import ListeningSocket, SqlConnections

DEFAULT_PORT: Final = 8088
_CLOSING_S: Final = 3.0
_IDLE_S: Final = 20
"""The time-out of a connection for a handshake, for the head of a request, and between requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTerms:
    """The address to listen on, and the certificate (PEM files); None: plain text."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    certificate: Path | None = None
    key: Path | None = None

    @property
    def scheme(self) -> str:
        return "https" if self.certificate is not None else "http"


def listening(terms: HttpTerms) -> socket.socket:
    """Listens on the address. ConfigError when that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(terms.host, terms.port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(256)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {terms.host}:{terms.port}: {error.strerror or error}: give another --listen"
        ) from error
    opened.setblocking(False)
    return opened


def url(terms: HttpTerms, opened: socket.socket) -> str:
    host, port = opened.getsockname()[:2]
    return f"{terms.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


class _OwnSocket(hypercorn.config.Config):
    """Hypercorn's settings, with a socket that is open already."""

    def __init__(self, opened: socket.socket) -> None:
        super().__init__()
        self._opened = opened

    def create_sockets(self) -> hypercorn.config.Sockets:
        secure, plain = ([self._opened], []) if self.ssl_enabled else ([], [self._opened])
        return hypercorn.config.Sockets(secure, plain, [])


async def serve_http(
    app: ASGIApp,
    terms: HttpTerms,
    opened: socket.socket,
    ended: asyncio.Event,
    on_ready: Callable[[str], object] = lambda address: None,
    connections: SqlConnections | None = None,
) -> None:
    """Serves until `ended`. `on_ready(URL)` is called when requests are answered. `connections`: those that the app names."""
    if terms.key is not None:
        secret_files.check_private(f"--key={str(terms.key)!r}", str(terms.key))
    address = url(terms, opened)
    accepting = ListeningSocket(opened, connections or SqlConnections())
    config = _OwnSocket(accepting)
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = _CLOSING_S
    config.h2_max_concurrent_streams = 100
    config.keep_alive_timeout = _IDLE_S
    config.ssl_handshake_timeout = _IDLE_S
    if terms.certificate is not None:
        config.certfile = str(terms.certificate)
        config.keyfile = str(terms.key) if terms.key is not None else None
        config.alpn_protocols = ["h2", "http/1.1"]
    on_ready(address)
    serve: Any = hypercorn.asyncio.serve
    try:
        await serve(app, config, shutdown_trigger=ended.wait, mode="asgi")
    finally:
        accepting.close()
