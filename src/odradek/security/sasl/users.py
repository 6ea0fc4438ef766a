"""The SCRAM credentials of a cluster's users, as the image and the registry have them (KIP-554). Imported by every broker that
starts: it imports little itself."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.model.parted import Parted

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
SALT_BYTES: Final = 16
"""The size of salts that are made here; other tools make longer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """A broker's record of a user's password, for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


NO_USERS: Final[Parted[str, Mapping[str, ScramCredential]]] = Parted(str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUsers:
    """Credentials by user and mechanism. `seed`: a secret that all brokers share, for the salts of users that do not exist."""

    seed: str = field(default="", repr=False)
    users: Parted[str, Mapping[str, ScramCredential]] = NO_USERS

    def credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self.users.get(user, {}).get(mechanism)

    def shapes(self, mechanism: str) -> CredentialShapes:
        """Each call counts the users again."""
        return CredentialShapes(
            credentials[mechanism] for credentials in self.users.values() if mechanism in credentials
        )


class CredentialShapes:
    """The parts of credentials that any client sees by beginning a login, iterations and salt length, and their user counts.

    Users that do not exist are given shapes in the same proportions: a shape does not tell whether a user exists.
    """

    def __init__(self, credentials: Iterable[ScramCredential] = ()) -> None:
        counts = Counter((credential.iterations, len(credential.salt)) for credential in credentials)
        self._counts = sorted(counts.items()) or [((ITERATIONS_MIN, SALT_BYTES), 1)]
        self._total = sum(count for _, count in self._counts)

    def draw(self, share: float) -> tuple[int, int]:
        """Iterations and the length of the salt. The same `share`, from 0 to 1, draws the same while users hardly change."""
        place = int(share * self._total)
        for shape, count in self._counts:
            if place < count:
                return shape
            place -= count
        return self._counts[-1][0]


NO_SCRAM_USERS: Final = ScramUsers()


def as_json(users: Mapping[str, Mapping[str, ScramCredential]]) -> dict[str, dict[str, str]]:
    """Returns users as JSON for the registry and for other brokers, in the form that Kafka used in ZooKeeper."""
    return {
        user: {mechanism: credential_text(credential) for mechanism, credential in credentials.items()}
        for user, credentials in users.items()
    }


def from_json(stored: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, ScramCredential]]:
    """Reads what `as_json` returned."""
    return {
        user: {mechanism: credential_from(text) for mechanism, text in credentials.items()}
        for user, credentials in stored.items()
    }


def credential_text(credential: ScramCredential) -> str:
    """Returns the credential in Kafka's text form."""
    parts = (credential.salt, credential.stored_key, credential.server_key)
    salt, stored_key, server_key = (base64.b64encode(part).decode() for part in parts)
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def credential_from(text: str) -> ScramCredential:
    """Reads a credential from the text of `credential_text`."""
    values = dict(part.split("=", 1) for part in text.split(","))
    return ScramCredential(
        salt=base64.b64decode(values["salt"]),
        stored_key=base64.b64decode(values["stored_key"]),
        server_key=base64.b64decode(values["server_key"]),
        iterations=int(values["iterations"]),
    )
