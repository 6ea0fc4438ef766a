"""The keys of the tokens' issuer, kept fresh: from a file, or from an https URL that the settings allow.

Nothing here waits for them: a login goes by the keys of the moment. A key id that is not among them may be new, so it has them
fetched again, but not more often than the pauses after a failure allow, and the same id does so only once in a while.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Final
from urllib.parse import unquote, urlsplit

from odradek.config.sasl import SaslConfig
from odradek.model.errors import ConfigError
from odradek.runtime.ports import Runtime
from odradek.security.sasl.tokens import IssuerKey, IssuerKeys, parse_jwks
from odradek.telemetry import events

_log = events.get("security")
_FETCH_SECONDS: Final = 10.0
_BYTES_MAX: Final = 1 << 20
_UNKNOWN_SECONDS: Final = 60.0
_UNKNOWN_MAX: Final = 1000


class KeySource:
    """The signing keys of the tokens' issuer, from a file or a URL.

    Call `refresh` regularly. `keys` is empty until the first fetch from a URL is done; a file is read at once."""

    def __init__(self, config: SaslConfig, runtime: Runtime) -> None:
        """Raises ConfigError for a URL that is not allowed, or a file that cannot be used."""
        url = config.oauthbearer_jwks_endpoint_url
        assert url is not None, "asked for only with a URL"
        self._url: Final = url
        self._config = config
        self._runtime = runtime
        self._keys: dict[str, IssuerKey] = {}
        self._due_s = 0.0
        self._failures = 0
        self._unknown: dict[str, float] = {}
        self._fetch = _reader(url, config.oauthbearer_allowed_urls)
        if urlsplit(url).scheme == "file":
            self._keys = parse_jwks(self._fetch(), url)
            self._due_s = runtime.clock.monotonic() + config.oauthbearer_jwks_endpoint_refresh_ms / 1000

    @property
    def keys(self) -> IssuerKeys:
        return self._keys

    def unknown_key(self, key_id: str) -> None:
        """Handles a token that names an absent key."""
        now = self._runtime.clock.monotonic()
        if self._unknown.get(key_id, 0.0) > now or self._failures:
            return
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown.clear()
        self._unknown[key_id] = now + _UNKNOWN_SECONDS
        self._due_s = min(self._due_s, now + self._config.oauthbearer_jwks_endpoint_retry_backoff_ms / 1000)

    async def refresh(self) -> None:
        """Fetch them, if it is time."""
        now = self._runtime.clock.monotonic()
        if now < self._due_s:
            return
        try:
            self._keys = parse_jwks(await self._runtime.offload.run(self._fetch), self._url)
        except (ConfigError, OSError) as error:
            self._due_s = self._runtime.clock.monotonic() + self._pause_s()
            self._failures += 1
            if self._failures == 1:
                _log.warning("issuer_keys_not_fetched", url=self._url, reason=str(error))
        else:
            self._failures = 0
            self._due_s = (
                self._runtime.clock.monotonic() + self._config.oauthbearer_jwks_endpoint_refresh_ms / 1000
            )

    def _pause_s(self) -> float:
        first_ms = self._config.oauthbearer_jwks_endpoint_retry_backoff_ms
        longest_ms = self._config.oauthbearer_jwks_endpoint_retry_backoff_max_ms
        return float(min(first_ms * 2 ** min(self._failures, 30), longest_ms)) / 1000


def _reader(url: str, allowed: tuple[str, ...]) -> Callable[[], bytes]:
    parts = urlsplit(url)
    key = "sasl.oauthbearer.jwks.endpoint.url"
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        path = unquote(parts.path)
        return lambda: _read_file(key, path)
    if parts.scheme != "https":
        raise ConfigError(f"{key}={url!r} is not allowed: expected file:// or https://")
    if url not in allowed:
        raise ConfigError(f"{key}={url!r} is not allowed: it is not in odradek.sasl.oauthbearer.allowed.urls")
    return lambda: _fetch(url)


def _read_file(key: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{key}: {path!r} cannot be read: {error.strerror}") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object, **more: object) -> None:
        return None


def _fetch(url: str) -> bytes:
    opener = urllib.request.build_opener(_NoRedirects)
    with opener.open(url, timeout=_FETCH_SECONDS) as response:
        content: bytes = response.read(_BYTES_MAX)
        return content
