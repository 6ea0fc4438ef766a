"""How clients reach the brokers: in plain text, or logged in by SCRAM as users with exactly the rules that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

MECHANISM: Final = "SCRAM-SHA-256"
PROTOCOL: Final = "SASL_PLAINTEXT"
BROKER: Final = "broker"
"""The brokers' own user, the only super user. It writes the first access rules."""
WRITER, SOURCE_WRITER, COPIER, MEMBER = "writer", "source-writer", "copier", "member"
WATCH, CHECKER, OBSERVER, OWNER, KEEPER = "watch", "checker", "observer", "owner", "keeper"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """`address`: what clients call `bootstrap.servers`."""

    address: str
    is_secured: bool = False

    def of(self, user: str) -> dict[str, Any]:
        """For librdkafka: where the brokers are, and who this client is."""
        if not self.is_secured:
            return {"bootstrap.servers": self.address}
        return {
            "bootstrap.servers": self.address,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password(user),
        }


def password(user: str) -> str:
    return f"{user}-secret"
