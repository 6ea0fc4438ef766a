"""One login at an identity provider, from the redirect there to the redirect back: state, nonce and PKCE. Pure.

Nothing is kept for a login that was begun, so no one fills the memory with them: state, nonce and verifier follow from a random
id, which the browser has in a signed cookie, and from a key of this process. Only logins that came back are remembered, so that
none of them comes back twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

FLOW_S: Final = 600.0
"""The time in which a login has to come back."""
USED_MAX: Final = 10_000
BACK_LENGTH_MAX: Final = 1_000
_COOKIE_LENGTH_MAX: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginFlow:
    """A login that was begun."""

    flow_id: str
    back: str
    """The path of the console to go on to."""
    began_s: float
    state: str
    """Sent to the provider and back; it ties the answer to this browser."""
    nonce: str
    """A part of the ID token; it ties the token to this login."""
    verifier: str
    """Sent with the code (RFC 7636): someone who only sees the code gets no token for it."""

    @property
    def challenge(self) -> str:
        """The verifier's SHA-256 hash, which the provider sees first."""
        return _text(hashlib.sha256(self.verifier.encode()).digest())


class LoginFlows:
    """Begins logins, and recognizes them when they come back."""

    def __init__(self, key: bytes, used_max: int = USED_MAX) -> None:
        self._key = hmac.digest(key, b"odradek console login", "sha256")
        self._used: OrderedDict[str, float] = OrderedDict()
        self._used_max = used_max

    def begin(self, back: str, now_s: float) -> tuple[str, LoginFlow]:
        """Returns the value of the cookie, and the login."""
        if len(back) > BACK_LENGTH_MAX:
            back = "/"
        flow = self._flow(secrets.token_urlsafe(16), back, now_s)
        content = _text(json.dumps([flow.flow_id, back, now_s]).encode())
        return f"{content}.{self._mac('cookie', content)}", flow

    def read(self, cookie: str, now_s: float) -> LoginFlow | None:
        """Returns the login of a cookie; None if there is none, it is too old, of another process, or came back before."""
        content, _, mac = cookie.partition(".")
        if len(cookie) > _COOKIE_LENGTH_MAX or not hmac.compare_digest(
            mac.encode(), self._mac("cookie", content).encode()
        ):
            return None
        flow_id, back, began_s = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
        if not 0 <= now_s - began_s <= FLOW_S or flow_id in self._used:
            return None
        return self._flow(flow_id, back, began_s)

    def use(self, flow: LoginFlow, now_s: float) -> None:
        """Notes that a login has come back: its cookie counts no more."""
        self._used[flow.flow_id] = now_s
        while self._used and (
            len(self._used) > self._used_max or now_s - next(iter(self._used.values())) > FLOW_S
        ):
            self._used.popitem(last=False)

    def _flow(self, flow_id: str, back: str, began_s: float) -> LoginFlow:
        return LoginFlow(
            flow_id=flow_id,
            back=back,
            began_s=began_s,
            state=self._mac("state", flow_id),
            nonce=self._mac("nonce", flow_id),
            verifier=self._mac("verifier", flow_id),
        )

    def _mac(self, purpose: str, text: str) -> str:
        return _text(hmac.digest(self._key, f"{purpose} {text}".encode(), "sha256"))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
