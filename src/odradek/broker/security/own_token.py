"""The token by which this broker logs in to others (OAUTHBEARER), from its issuer (KIP-768).

A login asks for it before its first step; the request runs on a thread. Connections that are made meanwhile wait for the same
request. A token is used until a fifth of its time is left, and up to its end while the issuer gives no new one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.config.listener_security import ListenerSecurity
from odradek.config.sasl import TOKEN_ENDPOINT
from odradek.model.errors import ConfigError
from odradek.net.outgoing_security import LoginFailed
from odradek.net.token_issuer import TIME_USED, IssuerUnavailable, TokenGrant, TokenIssuer
from odradek.runtime.ports import Runtime
from odradek.telemetry import events

_log = events.get("security")
_WAIT_S: Final = 4.0
"""The default timeout of a connection to the issuer, and then of its answer: a login has ten seconds in all."""
_DOUBLINGS_MAX: Final = 30


class OwnToken:
    """The token of one listener's settings. Used on the event loop only."""

    def __init__(self, listener: str, security: ListenerSecurity, runtime: Runtime) -> None:
        """Raises ConfigError for a URL that is not allowed."""
        sasl = security.sasl
        url = sasl.oauthbearer_token_endpoint_url
        assert url is not None, "made only with a URL"
        if url not in sasl.oauthbearer_allowed_urls:
            raise ConfigError(
                f"{TOKEN_ENDPOINT}={url!r} is not allowed: it is not in odradek.sasl.oauthbearer.allowed.urls"
            )
        self._listener: Final = listener
        self._runtime: Final = runtime
        self._backoff_ms: Final = sasl.login_retry_backoff_ms, sasl.login_retry_backoff_max_ms
        self._issuer: Final = TokenIssuer(
            url,
            security.token_client,
            connect_s=_seconds(sasl.login_connect_timeout_ms),
            read_s=_seconds(sasl.login_read_timeout_ms),
        )
        self._requesting: Final = asyncio.Lock()
        self._token = ""
        self._used_until_s = 0.0
        self._ends_s = 0.0
        self._failures = 0
        self._not_before_s = 0.0
        self._reason = ""

    def token(self) -> str:
        """Returns the current token; call `renew` first."""
        return self._token

    async def renew(self) -> None:
        """Returns when there is a token that counts. LoginFailed where there is none, and for the pause after that."""
        async with self._requesting:
            now = self._runtime.clock.monotonic
            if now() < self._used_until_s:
                return
            if now() >= self._not_before_s:
                await self._request(now())
            if self._failures and now() >= self._ends_s:
                raise LoginFailed(self._reason)

    async def _request(self, requested_s: float) -> None:
        try:
            grant = await self._runtime.offload.run(self._issuer.request)
        except (IssuerUnavailable, LoginFailed) as error:
            self._failed(str(error))
        except asyncio.CancelledError:
            self._failed(f"{self._issuer.address} gives no token in time")
            raise
        else:
            self._apply(grant, requested_s)

    def _apply(self, grant: TokenGrant, requested_s: float) -> None:
        if self._failures:
            _log.info("own_token_fetched_again", listener=self._listener, issuer=self._issuer.address)
        self._failures = 0
        self._token = grant.token
        self._used_until_s = requested_s + grant.lifetime_s * TIME_USED
        self._ends_s = requested_s + grant.lifetime_s

    def _failed(self, reason: str) -> None:
        first_ms, longest_ms = self._backoff_ms
        pause_s = min(first_ms * 2 ** min(self._failures, _DOUBLINGS_MAX), longest_ms) / 1000
        self._failures += 1
        self._not_before_s = self._runtime.clock.monotonic() + pause_s
        self._reason = reason
        if self._failures == 1:
            _log.warning("own_token_not_fetched", listener=self._listener, reason=reason)


def _seconds(timeout_ms: int | None) -> float:
    return _WAIT_S if timeout_ms is None else timeout_ms / 1000
