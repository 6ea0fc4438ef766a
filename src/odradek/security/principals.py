"""Principals, as Kafka writes them (a type, a colon, a name), and the addresses that they act from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

USER: Final = "User:"
ANONYMOUS: Final = "User:ANONYMOUS"
"""A client that does not authenticate."""
BROKER_ITSELF: Final = "Broker:"
"""The principal of a request that a broker forwards for no client. Without a name, no client or ACL can have the same."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The principal and the address of a request's client; for a forwarded request, of the original
    client."""

    principal: str = ANONYMOUS
    host: str = ""
    is_by_token: bool = False
    """Logged in with a delegation token (KIP-48): it may not make tokens itself."""
    is_authenticated: bool = False
    """Logged in, or showed a certificate."""

    @property
    def authentication(self) -> int:
        """The number for a forwarded request: 0 not authenticated, 1 authenticated, 2 authenticated by a token."""
        return 2 if self.is_by_token else int(self.is_authenticated)


UNKNOWN_REQUESTER: Final = Requester()


def by_certificate(principal: str | None, host: str) -> Requester:
    """Returns the requester of a connection with TLS; without a certificate the principal is ANONYMOUS."""
    known = principal or ANONYMOUS
    return Requester(known, host, is_authenticated=known != ANONYMOUS)
