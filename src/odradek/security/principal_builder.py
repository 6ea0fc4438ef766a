"""Who a connection acts for: a port, and Kafka's own rule (`principal.builder.class`).

Kafka's DefaultKafkaPrincipalBuilder: the user of the SASL login; else the name in the client's certificate, by
`ssl.principal.mapping.rules`; else `User:ANONYMOUS`. The connection's authentication works these out; the builder chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from odradek.model.errors import ConfigError
from odradek.security.authorizer import made_of
from odradek.security.principals import ANONYMOUS

DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticatedPeer:
    """What is known of a client once it is authenticated, or need not be."""

    listener_name: str
    client_host: str
    sasl_user: str | None = None
    """Who logged in with SASL."""
    sasl_mechanism: str | None = None
    tls_name: str | None = None
    """The name in the client's certificate, mapped by `ssl.principal.mapping.rules`."""


class PrincipalBuilder(Protocol):
    """Made without arguments; asked once for each connection, and again when it authenticates again."""

    def build(self, peer: AuthenticatedPeer) -> str:
        """The principal, as `User:name`."""


class DefaultPrincipalBuilder:
    """Kafka's rule."""

    def build(self, peer: AuthenticatedPeer) -> str:
        name = peer.sasl_user if peer.sasl_user is not None else peer.tls_name
        return ANONYMOUS if name is None else f"User:{name}"


def make_principal_builder(class_name: str) -> PrincipalBuilder:
    """ConfigError when the class cannot be made."""
    if not class_name or class_name == DEFAULT_PRINCIPAL_BUILDER:
        return DefaultPrincipalBuilder()
    builder = made_of(class_name, "principal.builder.class")
    if not hasattr(builder, "build"):
        raise ConfigError(
            f"principal.builder.class={class_name}: the class has no method build; "
            "see odradek.security.principal_builder.PrincipalBuilder"
        )
    own: PrincipalBuilder = builder
    return own
