"""Who acts, as Kafka writes it: a type, a colon, a name; and from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User:"
ANONYMOUS: Final = "User:ANONYMOUS"
"""A client that does not authenticate."""
BROKER_ITSELF: Final = "Broker:"
"""In a request that a broker passes on for no client. It has no name, so no client's principal and no ACL can be it."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asks, and from which address. Of a forwarded request: the client that asked first."""

    principal: str = ANONYMOUS
    host: str = ""
    is_by_token: bool = False
    """Logged in with a delegation token (KIP-48): it may not make tokens itself."""
    is_authenticated: bool = False
    """Logged in, or showed a certificate."""

    @property
    def authentication(self) -> int:
        """For a request that is passed on: 0 not authenticated, 1 authenticated, 2 by a token."""
        return 2 if self.is_by_token else int(self.is_authenticated)


UNKNOWN_REQUESTER: Final = Requester()


def by_certificate(principal: str | None, host: str) -> Requester:
    """Of a connection with TLS; without a certificate the principal is ANONYMOUS."""
    known = principal or ANONYMOUS
    return Requester(known, host, is_authenticated=known != ANONYMOUS)
