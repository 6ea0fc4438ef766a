"""kazoo's client as this registry needs it: its threads, TLS, and the login. Imports kazoo."""

from __future__ import annotations

import importlib.util
import logging
import socket
import ssl
from typing import Any, Final

from odradek.config.zookeeper import SASL, ZooKeeperConfig, parse_connect
from odradek.model.errors import ConfigError
from odradek.security.tls.contexts import keystore_problem

try:
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler
    from kazoo.retry import KazooRetry
except ModuleNotFoundError:
    raise ConfigError("zookeeper.connect needs kazoo: pip install kazoo") from None

_RECONNECT_SECONDS_MAX: Final = 1.0


def new_client(config: ZooKeeperConfig) -> tuple[KazooClient, Threads]:
    """Returns a client that was not started, and its threads. ConfigError for files and names that cannot be used."""
    connect = parse_connect(config.connect or "")
    session_s = config.session_timeout_ms / 1000
    threads = Threads(_tls_context(config), api_timeout_s=session_s / max(4, 2 * len(connect.servers)))
    client = KazooClient(
        hosts=connect.addresses,
        timeout=session_s,
        handler=threads,
        connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=_RECONNECT_SECONDS_MAX),
        logger=_quiet_logger(threads),
        **_credentials(config),
    )
    return client, threads


class Threads(SequentialThreadingHandler):  # type: ignore[misc]
    """The threads of kazoo's client, with connections of our own.

    - TLS is our own: kazoo's would trust every authority of the system in addition to the one given.
    - A server has `api_timeout_s` to accept a connection and to answer the first request. kazoo would give it the whole of the
      session's timeout, and a host that is off, or a server that is caught starting (it may then keep the connection open and
      never answer), would cost the session.
    """

    def __init__(self, tls: ssl.SSLContext | None, *, api_timeout_s: float) -> None:
        super().__init__()
        self._tls = tls
        self._api_timeout_s = api_timeout_s
        self.trouble = ""
        """The reason why there is no connection, in a few words."""
        self.is_greeted = False
        """The server that is connected to has answered."""

    def create_connection(self, address: tuple[str, int], hostname: str = "", **_: object) -> socket.socket:
        self.is_greeted = False
        try:
            connection = socket.create_connection(address, self._api_timeout_s)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            raise
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=hostname)
        except OSError as error:
            connection.close()
            self.trouble = f"no TLS: {error.strerror or error}"
            raise
        self.trouble = "connected, but not answered"
        return connection

    def select(
        self, readable: Any, writable: object, exceptional: object, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Selects also streams with bytes that TLS has decrypted already, which the system's select does not see."""
        pending = [stream for stream in readable if isinstance(stream, ssl.SSLSocket) and stream.pending()]
        if pending:
            return pending, [], []
        if not self.is_greeted:
            timeout = self._api_timeout_s if timeout is None else min(timeout, self._api_timeout_s)
        ready: tuple[list[object], list[object], list[object]] = super().select(
            readable, writable, exceptional, timeout
        )
        return ready


def _tls_context(config: ZooKeeperConfig) -> ssl.SSLContext | None:
    if not config.ssl_client_enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = bool(config.ssl_endpoint_identification_algorithm)
    wanted = config.ssl_enabled_protocols or (
        (config.ssl_protocol,) if config.ssl_protocol not in (None, "TLS") else ()
    )
    versions = sorted(ssl.TLSVersion[name.replace(".", "_")] for name in wanted if name)
    context.minimum_version = versions[0] if versions else ssl.TLSVersion.TLSv1_2
    if versions:
        context.maximum_version = versions[-1]
    key = "zookeeper.ssl.truststore.location"
    try:
        if config.ssl_truststore_location:
            context.load_verify_locations(config.ssl_truststore_location)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        key = "zookeeper.ssl.keystore.location"
        if config.ssl_keystore_location:
            password = config.ssl_keystore_password or ""
            context.load_cert_chain(config.ssl_keystore_location, password=password)
        key = "zookeeper.ssl.cipher.suites"
        if config.ssl_cipher_suites:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
    except OSError as error:
        why: object = error.strerror or error
        if isinstance(error, ssl.SSLError) and key.endswith("keystore.location"):
            why = keystore_problem(error)
        raise ConfigError(f"{key} is not allowed: {why}") from None
    return context


def _credentials(config: ZooKeeperConfig) -> dict[str, object]:
    if config.username is None:
        return {}
    if config.auth_scheme != SASL:
        return {"auth_data": [("digest", f"{config.username}:{config.password}")]}
    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("odradek.zookeeper.auth.scheme=sasl needs pure-sasl: pip install pure-sasl")
    user, password = config.username, config.password
    return {"sasl_options": {"mechanism": "DIGEST-MD5", "username": user, "password": password}}


class _LogHandler(logging.Handler):
    """Handles kazoo's log, and keeps only what tells a person something new: names that cannot be resolved."""

    def __init__(self, threads: Threads) -> None:
        super().__init__(logging.WARNING)
        self._threads = threads

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("Cannot resolve"):
            self._threads.trouble = message[:1].lower() + message[1:]


def _quiet_logger(threads: Threads) -> logging.Logger:
    """Returns a logger apart from all others: at finer levels kazoo writes passwords into its log."""
    logger = logging.Logger("odradek.registry.kazoo", logging.WARNING)
    logger.addHandler(_LogHandler(threads))
    return logger
