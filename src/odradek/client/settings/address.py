"""Broker addresses as people write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.model.errors import ConfigError
from odradek.model.java_numbers import is_digits, trimmed


class Address(NamedTuple):
    """A host (name or IP, without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """Parses `"a:9092,b:9092"` or a list of such; a ConfigError names the part that is not host:port."""
    parts = servers.split(",") if isinstance(servers, str) else list(servers)
    addresses = tuple(_parse_one(trimmed(part)) for part in parts if trimmed(part))
    if not addresses:
        raise ConfigError("bootstrap.servers is empty: name at least one broker, as host:port")
    return tuple(dict.fromkeys(addresses))


def _parse_one(text: str) -> Address:
    rest = text.partition("://")[2] or text
    host, colon, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not is_digits(port) or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap.servers: {text!r:.80} is not host:port")
    return Address(host, int(port))
