"""HTTP to an identity provider: no redirects, bounded, with TLS unless the provider is on this machine. It blocks."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError, OdradekError
from odradek.runtime.ports import Clock

CALL_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_CHUNK_BYTES: Final = 64 << 10


class ProviderUnavailableError(OdradekError):
    """The identity provider gives no usable answer now."""


class ProviderRefusedError(OdradekError):
    """The identity provider, or a check of its answer, refuses this login."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAnswer:
    """An answer: its status, and its JSON object; empty if it has none."""

    status: int
    fields: Mapping[str, object]


def check_url(url: str, what: str) -> str:
    """Returns the URL. ConfigError unless it is https, or http to this machine, without user, password or fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
        is_valid = bool(parts.hostname) and parts.port != 0 and not parts.fragment and "@" not in parts.netloc
    except ValueError:
        is_valid = False
    if not is_valid or not url.isprintable() or " " in url:
        raise ConfigError(f"{what} {url[:200]!r} is no URL of an identity provider")
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise ConfigError(f"{what} {url[:200]!r} is not allowed: expected https://")
    return url


def request(
    url: str,
    clock: Clock,
    *,
    form: Mapping[str, str] | None = None,
    authorization: str = "",
    ca_file: str = "",
) -> ProviderAnswer:
    """Sends a GET, or a POST of a form. ProviderUnavailableError if no whole answer comes in time."""
    parts = urllib.parse.urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc}{parts.path}"
    deadline_s = clock.monotonic() + CALL_S
    connection = _connection(parts, ca_file)
    try:
        target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        headers = {"Accept": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        if form is None:
            connection.request("GET", target, headers=headers)
        else:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request("POST", target, urllib.parse.urlencode(form).encode(), headers)
        response = connection.getresponse()
        content = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            content += chunk
            if len(content) > ANSWER_BYTES_MAX or clock.monotonic() > deadline_s:
                raise ProviderUnavailableError(f"the answer of {place} is too long or too slow")
    except (OSError, http.client.HTTPException) as error:
        raise ProviderUnavailableError(f"{place} does not answer: {error}") from None
    finally:
        connection.close()
    if (
        response.status >= http.client.INTERNAL_SERVER_ERROR
        or response.status == http.client.TOO_MANY_REQUESTS
    ):
        raise ProviderUnavailableError(f"{place} does not answer now: HTTP {response.status}")
    return ProviderAnswer(status=response.status, fields=_object(bytes(content)))


def _connection(parts: urllib.parse.SplitResult, ca_file: str) -> http.client.HTTPConnection:
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=CALL_S)
    trusted = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=CALL_S, context=trusted)


def _object(content: bytes) -> dict[str, object]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
