"""Delegation tokens as the image and the registry have them (KIP-48).

Imported by every broker that starts: it imports little itself.

A token's HMAC, the password of a login with it, is not among them: it follows from the id and the brokers' secret key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from odradek.model.aliases import Json
from odradek.model.parted import Parted
from odradek.security.sasl.users import ScramCredential, credential_from, credential_text


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """One token. Principals are written `User:alice`; times are milliseconds since 1970."""

    token_id: str
    owner: str
    """A client that logs in with the token acts as this one."""
    requester: str
    """The principal that requested it."""
    renewers: tuple[str, ...]
    """The principals that may renew and end it, in addition to its owner."""
    issued_ms: int
    expires_ms: int
    max_ms: int
    """The time beyond which it cannot be renewed."""
    credentials: Mapping[str, ScramCredential] = field(repr=False)
    """Its credentials by mechanism: the token's id is the user, its HMAC in base64 the password."""

    def may_be_changed_by(self, principal: str) -> bool:
        return principal == self.owner or principal in self.renewers

    def is_over(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms or self.max_ms < now_ms


DelegationTokens = Parted[str, DelegationToken]
"""Delegation tokens by id."""
NO_TOKENS: Final[DelegationTokens] = Parted(str)


def tokens_as_json(tokens: Mapping[str, DelegationToken]) -> dict[str, Json]:
    return {
        token.token_id: {
            "owner": token.owner,
            "requester": token.requester,
            "renewers": list(token.renewers),
            "issued": token.issued_ms,
            "expires": token.expires_ms,
            "max": token.max_ms,
            "credentials": {
                mechanism: credential_text(credential) for mechanism, credential in token.credentials.items()
            },
        }
        for token in tokens.values()
    }


class _StoredToken(TypedDict):
    """The JSON of a token."""

    owner: str
    requester: str
    renewers: list[str]
    issued: int
    expires: int
    max: int
    credentials: dict[str, str]


def tokens_from_json(stored: Mapping[str, _StoredToken]) -> dict[str, DelegationToken]:
    return {
        token_id: DelegationToken(
            token_id=token_id,
            owner=values["owner"],
            requester=values["requester"],
            renewers=tuple(values["renewers"]),
            issued_ms=values["issued"],
            expires_ms=values["expires"],
            max_ms=values["max"],
            credentials={
                mechanism: credential_from(text) for mechanism, text in values["credentials"].items()
            },
        )
        for token_id, values in stored.items()
    }
