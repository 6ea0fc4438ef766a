"""`listeners` and its kin: where the broker listens, and what it tells clients to connect to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import trimmed
from odradek.model.lazy import lazy
from odradek.model.ports import PORT_MAX

if TYPE_CHECKING:
    import ipaddress
    from urllib import parse as urls
else:
    ipaddress = lazy("ipaddress")
    urls = lazy("urllib.parse")

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


_ADDRESS = re.compile(r"(?P<name>[^:/\s]+)://(?P<host>\[[^\]]*\]|[^\[\]:/\s]*):(?P<port>[0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address. An empty host means every interface; port 0 lets the system choose."""

    name: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 9092
    protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.name}://{format_address(self.host, self.port)}"


def format_address(host: str, port: int) -> str:
    """Returns `host:port`, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_protocol_map(key: str, items: Iterable[str]) -> dict[str, str]:
    """Parses `listener.security.protocol.map`: listener names to security protocols; protocols name themselves."""
    protocols = {name: name for name in SECURITY_PROTOCOLS}
    for entry in items:
        name, colon, protocol = entry.partition(":")
        if not colon or not name.strip() or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            allowed = ", ".join(SECURITY_PROTOCOLS)
            raise ConfigError(
                f"{key}={entry!r:.80} is not allowed: expected NAME:PROTOCOL, with one of {allowed}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(key: str, items: Iterable[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Returns the listeners in the order given. ConfigError for one malformed, doubled, or of no known protocol."""
    listeners: list[Listener] = []
    for entry in items:
        listener = _parse_listener(key, entry, protocols)
        if any(other.name == listener.name for other in listeners):
            raise ConfigError(f"{key}={entry!r} is not allowed: the name {listener.name} is used twice")
        clash = next((other for other in listeners if want_one_port(other, listener)), None)
        if clash:
            raise ConfigError(f"{key}={entry!r} is not allowed: {clash} already uses port {listener.port}")
        listeners.append(listener)
    return tuple(listeners)


def check_advertised(key: str, advertised: Iterable[Listener], listeners: Iterable[Listener]) -> None:
    """Raises ConfigError unless clients can connect to each advertised address, under a listener's name."""
    names = {listener.name for listener in listeners}
    for listener in advertised:
        problem = None
        if listener.name not in names:
            problem = f"no listener is named {listener.name}"
        elif _is_wildcard(listener.host):
            problem = "clients cannot connect to 'every interface': name the host that they reach"
        elif listener.port == 0:
            problem = "clients cannot connect to port 0"
        if problem:
            raise ConfigError(f"{key}={str(listener)!r} is not allowed: {problem}")


def parse_host_port(text: str) -> tuple[str, int]:
    """Parses `HOST:PORT`, `[IPV6]:PORT` or `:PORT`; the ConfigError for another text names what is wrong."""
    match = _ADDRESS.match(f"X://{trimmed(text)}")
    if not match or int(match["port"]) > PORT_MAX:
        raise ConfigError(
            f"{text!r:.80} is not an address: expected HOST:PORT, with a port from 0 to {PORT_MAX}"
        )
    return match["host"].strip("[]"), int(match["port"])


def checked_http_address(key: str, text: str) -> str:
    """Returns the base address of an HTTP server. ConfigError, which names the key, for what is none, or has a login in it."""
    try:
        parts = urls.urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{key} is not allowed: expected http://HOST:PORT or https://HOST:PORT, without a login"
        )
    return text


def _parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    match = _ADDRESS.match(entry)
    if not match or int(match["port"]) > PORT_MAX:
        raise ConfigError(
            f"{key}={entry!r:.80} is not allowed: expected NAME://HOST:PORT, with a port from 0 to {PORT_MAX}"
        )
    name = match["name"].upper()
    if name not in protocols:
        raise ConfigError(
            f"{key}={entry!r} is not allowed: listener.security.protocol.map gives no protocol for {name}"
        )
    host = match["host"].strip("[]")
    return Listener(name=name, host=host, port=int(match["port"]), protocol=protocols[name])


def want_one_port(listener: Listener, other: Listener) -> bool:
    """Returns whether both want one port; an IPv4 and an IPv6 address may share it."""
    if listener.port != other.port or listener.port == 0:
        return False
    versions = {_ip_version(listener.host), _ip_version(other.host)}
    return versions != {4, 6}


def _ip_version(host: str) -> int | None:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")
