"""The principal of a connection: a port (`principal.builder.class`).

Kafka's own rule is the default: the user that logged in, else the name in the client's certificate by
`ssl.principal.mapping.rules`, else `User:ANONYMOUS`. A class of one's own gets this rule's principal, and may
return another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Protocol

from odradek.model.errors import ConfigError
from odradek.security.authorizer import made_of
from odradek.security.principals import Requester

_KEY: Final = "principal.builder.class"
_REMEMBERED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatedPeer:
    """A client after its authentication, or one that needs none."""

    principal: str
    """The principal by Kafka's rule."""
    listener_name: str
    client_host: str


class PrincipalBuilder(Protocol):
    """The port of `principal.builder.class`: it maps a connection's peer to a principal.

    A class is made without arguments. It must return the same principal for the same peer: results are cached."""

    def build(self, peer: AuthenticatedPeer) -> str:
        """Returns the principal, as `Type:name`."""


class BuiltPrincipals:
    """The principals that a builder returned for the clients of one broker."""

    def __init__(self, builder: PrincipalBuilder) -> None:
        self._builder = builder
        self.of = lru_cache(maxsize=_REMEMBERED_MAX)(self._build)

    def _build(self, known: Requester, listener_name: str) -> Requester:
        peer = AuthenticatedPeer(
            principal=known.principal, listener_name=listener_name, client_host=known.host
        )
        principal = self._builder.build(peer)
        type_, colon, name = principal.partition(":")
        if not (type_ and colon and name):
            raise ConfigError(
                f"{_KEY}: it built {principal!r}, which is no principal: a type, a colon and a name"
            )
        return replace(known, principal=principal)


def make_principals(class_name: str) -> BuiltPrincipals:
    """Makes the builder. Raises ConfigError when the class cannot be made."""
    builder = made_of(class_name, _KEY)
    if not hasattr(builder, "build"):
        raise ConfigError(
            f"{_KEY}={class_name}: the class has no method build; "
            "see odradek.security.principal_builder.PrincipalBuilder"
        )
    return BuiltPrincipals(builder)
