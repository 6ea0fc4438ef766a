"""Tokens for OAUTHBEARER from their issuer, by the asker's own id and secret (KIP-768; RFC 6749, section 4.4).

A request blocks: it belongs on a thread. How long its token is used again is up to clients and brokers.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass, field
from typing import Final

from odradek.config.sasl import TOKEN_ENDPOINT, TokenClient
from odradek.model.errors import ConfigError, OdradekError
from odradek.net.outgoing_security import LoginFailed

TIME_USED: Final = 0.8
"""The part of a token's lifetime after which it is renewed, as in Kafka's clients."""
_ANSWER_BYTES_MAX: Final = 1 << 20
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_PASSING: Final = (408, 429)
"""HTTP statuses after which a later request may succeed, in addition to 500 and more."""


class IssuerUnavailable(OdradekError):
    """The error of a token request that failed for now: a later attempt may succeed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenGrant:
    """An issuer's answer."""

    token: str = field(repr=False)
    lifetime_s: float
    """The lifetime from the request on; 0 where the issuer states none."""


class TokenIssuer:
    """A client of the issuer of OAUTHBEARER tokens. It may be called from any thread."""

    def __init__(self, url: str, client: TokenClient, *, connect_s: float, read_s: float) -> None:
        """Raises ConfigError for a URL that is not allowed."""
        parts = urllib.parse.urlsplit(url)
        is_plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
        if not parts.hostname or (parts.scheme != "https" and not is_plain):
            raise ConfigError(
                f"{TOKEN_ENDPOINT} is not allowed: expected https://, since a secret is sent there"
            )
        self._url: Final = parts
        self._client: Final = client
        self._connect_s: Final = connect_s
        self._read_s: Final = read_s

    def request(self) -> TokenGrant:
        """Requests a token. Raises LoginFailed where the issuer refuses, IssuerUnavailable where it does not answer."""
        fields = _object(self._content())
        token, seconds = fields.get("access_token"), fields.get("expires_in", 0)
        if not isinstance(token, str) or not token:
            raise LoginFailed(f"the answer of {self.address} holds no access_token")
        return TokenGrant(token=token, lifetime_s=seconds if isinstance(seconds, int | float) else 0)

    @property
    def address(self) -> str:
        """The issuer's URL without parts that may be secret."""
        return f"{self._url.scheme}://{self._url.hostname}{self._url.path}"

    def _content(self) -> bytes:
        connection = self._connection()
        try:
            connection.connect()
            connection.sock.settimeout(self._read_s)
            target = urllib.parse.urlunsplit(("", "", self._url.path or "/", self._url.query, ""))
            connection.request("POST", target, self._form(), self._headers())
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise IssuerUnavailable(f"{self.address} gives no token: {error}") from None
        finally:
            connection.close()
        if response.status >= http.client.INTERNAL_SERVER_ERROR or response.status in _PASSING:
            raise IssuerUnavailable(f"{self.address} gives no token now: HTTP {response.status}")
        if response.status != http.client.OK:
            reason = _object(content).get("error", "")
            raise LoginFailed(f"{self.address} gives no token: HTTP {response.status} {reason}".rstrip())
        return content

    def _connection(self) -> http.client.HTTPConnection:
        assert self._url.hostname is not None
        if self._url.scheme == "http":
            return http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=self._connect_s)
        trusted = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._url.hostname, self._url.port, timeout=self._connect_s, context=trusted
        )

    def _form(self) -> bytes:
        scope = self._client.scope
        fields = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        return urllib.parse.urlencode(fields).encode()

    def _headers(self) -> dict[str, str]:
        client = self._client
        name, secret = client.name, client.secret
        if client.is_url_encoded:
            name, secret = url_encoded(name), url_encoded(secret)
        return {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        }


def url_encoded(text: str) -> str:
    """Encodes a text as Java's URLEncoder and Kafka's clients do: `*` stays, `~` is encoded."""
    return urllib.parse.quote_plus(text, safe="*").replace("~", "%7E")


def _object(content: bytes) -> dict[str, object]:
    try:
        fields = json.loads(content)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
