"""Decisions about delegation tokens (KIP-48, KIP-373): who may make, renew and end them, and until when they count. Pure."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.principals import USER, Requester
from odradek.security.sasl.credentials import new_credential
from odradek.security.sasl.delegation_tokens import DelegationToken, DelegationTokens

TOKENS_MAX: Final = 1_000
"""The limit of tokens: they are one document, which every change writes whole, of about 600 bytes each, and a ZooKeeper
takes a megabyte."""
RENEWERS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTerms:
    """The terms for tokens in a cluster whose brokers have a secret key."""

    secret_key: str = field(repr=False)
    max_lifetime_ms: int
    expiry_ms: int
    """The time for which a token that is not renewed is valid."""

    def hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self.secret_key.encode(), token_id.encode(), "sha512")


def check_may_ask(requester: Requester) -> None:
    """Raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that did not log in, or did with a token."""
    if requester.is_by_token:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "a client that logged in with a delegation token may not ask about tokens",
        )
    if not requester.is_authenticated:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "the client did not log in at this listener: tokens are made at listeners with SASL or client certificates",
        )


def checked_user(type_: str | None, name: str | None) -> str:
    """Returns the principal. Raises INVALID_PRINCIPAL_TYPE for one that no login can have."""
    principal = f"{type_}:{name}"
    if not principal.startswith(USER) or not name:
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"{principal} is no user: its type must be User")
    return principal


def new_token(
    terms: DelegationTerms,
    *,
    token_id: str,
    salts: Mapping[str, bytes],
    owner: str,
    requester: str,
    renewers: Iterable[str],
    lifetime_ms: int,
    now_ms: int,
) -> DelegationToken:
    """Takes some 10 ms: its credentials are salted, by mechanism. `lifetime_ms`: 0 or less for as long as possible."""
    longest_ms = terms.max_lifetime_ms if lifetime_ms <= 0 else min(lifetime_ms, terms.max_lifetime_ms)
    max_ms = now_ms + longest_ms
    password = base64.b64encode(terms.hmac_of(token_id)).decode()
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=tuple(dict.fromkeys(renewers)),
        issued_ms=now_ms,
        expires_ms=min(max_ms, now_ms + terms.expiry_ms),
        max_ms=max_ms,
        credentials={
            mechanism: new_credential(mechanism, password, salt) for mechanism, salt in salts.items()
        },
    )


def new_token_id(uuids: Callable[[], UUID]) -> str:
    """Returns an id in Kafka's form. It never begins with a dash, which commands would take for an option."""
    while True:
        token_id = base64.urlsafe_b64encode(uuids().bytes).decode().rstrip("=")
        if not token_id.startswith("-"):
            return token_id


def with_token(tokens: DelegationTokens, token: DelegationToken, now_ms: int) -> DelegationTokens:
    """Adds a token, and drops expired ones. Raises POLICY_VIOLATION when there would be too many."""
    valid = without_those_over(tokens, now_ms)
    if len(valid) >= TOKENS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"the cluster has {len(valid)} delegation tokens, and may have {TOKENS_MAX}",
        )
    return valid.with_changes({token.token_id: token})


def token_of(
    tokens: DelegationTokens, terms: DelegationTerms, proof: bytes, principal: str, now_ms: int
) -> DelegationToken:
    """Returns the token with this HMAC, if the principal may renew and end it. KafkaError, as Kafka has it."""
    token = next(
        (known for known in tokens.values() if hmac.compare_digest(terms.hmac_of(known.token_id), proof)),
        None,
    )
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if token.is_over(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.may_be_changed_by(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return token


def renewed(token: DelegationToken, terms: DelegationTerms, period_ms: int, now_ms: int) -> DelegationToken:
    """Returns the token with a later expiry. `period_ms`: 0 or less for the usual one."""
    longest_ms = terms.expiry_ms if period_ms <= 0 else min(period_ms, terms.expiry_ms)
    return replace(token, expires_ms=min(token.max_ms, now_ms + longest_ms))


def shortened(token: DelegationToken, period_ms: int, now_ms: int) -> DelegationToken | None:
    """Returns the token with a new expiry; None for a negative period, which ends it at once."""
    return None if period_ms < 0 else replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def without_those_over(tokens: DelegationTokens, now_ms: int) -> DelegationTokens:
    """Returns the tokens that are valid at a time."""
    return tokens.with_changes(
        {token_id: None for token_id, token in tokens.items() if token.is_over(now_ms)}
    )
