"""A token for OAUTHBEARER from its issuer, by the client's own id and secret (KIP-768; RFC 6749, section 4.4).

Asked on a thread, when a connection logs in. A token is used again until a fifth of its time is left. An issuer that does not
answer is asked again by the next connection, after `reconnect.backoff.ms`.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import urllib.parse
from typing import Any, Final

from odradek.client.errors import BrokerUnreachableError
from odradek.client.security_settings import SecuritySettings
from odradek.model.errors import ConfigError
from odradek.net.outgoing_security import LoginFailed
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock

_KEY: Final = "sasl.oauthbearer.token.endpoint.url"
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIME_USED: Final = 0.8
"""Of a token's time, as Kafka's clients do it."""
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_PASSING: Final = (408, 429)
"""What a later request may get past, beside failures of the issuer itself."""


class TokenEndpoint:
    """One issuer, and the token that it gave last. Called from any thread."""

    def __init__(self, settings: SecuritySettings, clock: Clock | None = None) -> None:
        """ConfigError for a URL that is not allowed."""
        url = urllib.parse.urlsplit(settings.sasl_oauthbearer_token_endpoint_url)
        is_plain = url.scheme == "http" and url.hostname in _LOOPBACK
        if not url.hostname or (url.scheme != "https" and not is_plain):
            raise ConfigError(f"{_KEY} is not allowed: expected https://, since a secret is sent there")
        self._url: Final = url
        self._settings: Final = settings
        self._clock: Final = clock or SystemClock()
        self._lock: Final = threading.Lock()
        self._token = ""
        self._used_until_s = 0.0

    def token(self) -> str:
        """LoginFailed where the issuer refuses; a BrokerUnreachableError, which is retriable, where it does not answer."""
        with self._lock:
            if self._clock.monotonic() >= self._used_until_s:
                requested_s = self._clock.monotonic()
                self._token, seconds = self._parsed(self._requested())
                self._used_until_s = requested_s + seconds * _TIME_USED
            return self._token

    def _requested(self) -> bytes:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(self._settings.sasl_login_read_timeout_ms / 1000)
            target = urllib.parse.urlunsplit(("", "", self._url.path or "/", self._url.query, ""))
            connection.request("POST", target, self._form(), self._headers())
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise BrokerUnreachableError(f"{self._place} gives no token: {error}") from None
        finally:
            connection.close()
        if response.status >= http.client.INTERNAL_SERVER_ERROR or response.status in _PASSING:
            raise BrokerUnreachableError(f"{self._place} gives no token now: HTTP {response.status}")
        if response.status != http.client.OK:
            reason = _object(content).get("error", "")
            raise LoginFailed(f"{self._place} gives no token: HTTP {response.status} {reason}".rstrip())
        return content

    def _connection(self) -> http.client.HTTPConnection:
        connect_s = self._settings.sasl_login_connect_timeout_ms / 1000
        assert self._url.hostname is not None
        if self._url.scheme == "http":
            return http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=connect_s)
        trusted = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._url.hostname, self._url.port, timeout=connect_s, context=trusted
        )

    def _form(self) -> bytes:
        scope = self._settings.token_client.scope
        fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        return urllib.parse.urlencode(fields).encode()

    def _headers(self) -> dict[str, str]:
        client = self._settings.token_client
        return {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{client.name}:{client.secret}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def _parsed(self, content: bytes) -> tuple[str, float]:
        """The token, and for how many seconds it counts; 0 where the issuer does not say: it is asked each time."""
        fields = _object(content)
        token, seconds = fields.get("access_token"), fields.get("expires_in", 0)
        if not isinstance(token, str) or not token:
            raise LoginFailed(f"the answer of {self._place} holds no access_token")
        return token, seconds if isinstance(seconds, int | float) else 0

    @property
    def _place(self) -> str:
        """Without what may be a secret in a URL."""
        return f"{self._url.scheme}://{self._url.hostname}{self._url.path}"


def _object(content: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
