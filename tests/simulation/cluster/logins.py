"""A simulated cluster where everyone logs in: its settings, its users, and what proves who they are."""

from __future__ import annotations

from random import Random
from typing import Final

from odradek.net.outgoing_security import LoginCredentials
from odradek.security.authorizer import STANDARD_AUTHORIZER

MECHANISM: Final = "SCRAM-SHA-256"
ADMIN, BROKER, WORKER = "admin", "broker", "worker"
GUESTS: Final = ("guest-1", "guest-2", "guest-3")
VISITOR: Final = "visitor"
"""Is no user at first."""
RULES_AGE_S: Final = 10.0
"""Within this long, a rule that was taken away counts at no broker any more."""


def password(user: str) -> str:
    return f"{user}-secret"


def secured_settings(address: str) -> dict[str, str]:
    """Of a broker with one listener at `address`, on port 9092."""
    users = ";".join(
        f"{MECHANISM}=[name={user},password={password(user)}]" for user in (ADMIN, BROKER, WORKER, *GUESTS)
    )
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "listeners": f"SASL_PLAINTEXT://0.0.0.0:{address.rpartition(':')[2]}",
        "advertised.listeners": f"SASL_PLAINTEXT://{address}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.jaas.config": f'{module} required username="{BROKER}" password="{password(BROKER)}";',
        "odradek.scram.first.users": users,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "odradek.access.max.age.ms": str(int(RULES_AGE_S * 1000)),
    }


class LoginSource:
    """Credentials whose nonces a seed decides."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def of(self, user: str) -> LoginCredentials:
        return LoginCredentials(
            mechanism=MECHANISM, user=user, password=password(user), nonce=self._draw_nonce
        )

    def _draw_nonce(self) -> str:
        return f"{self._rng.getrandbits(144):036x}"
