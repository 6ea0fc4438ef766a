"""A client's token for OAUTHBEARER, from its issuer (KIP-768).

Asked on a thread, when a connection logs in. A token is used again until a fifth of its time is left. An issuer that does not
answer is asked again by the next connection, after `reconnect.backoff.ms`.
"""

from __future__ import annotations

import threading
from typing import Final

from odradek.client.network.errors import BrokerUnreachableError
from odradek.client.settings.security_settings import SecuritySettings
from odradek.net.token_issuer import TIME_USED, IssuerUnavailable, TokenIssuer
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock


class TokenEndpoint:
    """One issuer, and its last token. Called from any thread."""

    def __init__(self, settings: SecuritySettings, clock: Clock | None = None) -> None:
        """Raises ConfigError for a URL that is not allowed."""
        self._issuer: Final = TokenIssuer(
            settings.sasl_oauthbearer_token_endpoint_url,
            settings.token_client,
            connect_s=settings.sasl_login_connect_timeout_ms / 1000,
            read_s=settings.sasl_login_read_timeout_ms / 1000,
        )
        self._clock: Final = clock or SystemClock()
        self._lock: Final = threading.Lock()
        self._token = ""
        self._used_until_s = 0.0

    def token(self) -> str:
        """Returns a token. Raises LoginFailed if the issuer refuses, the retriable BrokerUnreachableError without an answer.

        If a token has no lifetime, the issuer is asked each time.
        """
        with self._lock:
            if self._clock.monotonic() >= self._used_until_s:
                requested_s = self._clock.monotonic()
                try:
                    grant = self._issuer.request()
                except IssuerUnavailable as error:
                    raise BrokerUnreachableError(str(error)) from None
                self._token = grant.token
                self._used_until_s = requested_s + grant.lifetime_s * TIME_USED
            return self._token
