"""Delegation tokens (KIP-48): the messages and their answers."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from odradek.client.admin.calls import CallOutcome, Exchange
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.protocol.messages.security.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek.protocol.messages.security.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek.protocol.messages.security.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from odradek.protocol.messages.security.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedToken:
    """A delegation token. Principals are written `User:alice`; times are milliseconds since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    issued_ms: int
    expires_ms: int
    max_ms: int

    @property
    def jaas_config(self) -> str:
        """The `sasl.jaas.config` of a client that logs in with the token, by SCRAM. It is a secret."""
        password = base64.b64encode(self.hmac).decode()
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{self.token_id}" password="{password}" tokenauth="true";'
        )


def create_token(owner: str | None, renewers: Iterable[str], max_lifetime_ms: int) -> Exchange:
    """Returns the exchange. Raises ConfigError for a name that is no principal."""
    wanted = tuple(renewers)
    owner_type, owner_name = (None, None) if owner is None else _parts(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            CreatableRenewer(principal_type=type_, principal_name=name) for type_, name in map(_parts, wanted)
        ],
        max_lifetime_ms=max_lifetime_ms,
    )

    def read(response: CreateDelegationTokenResponse) -> CallOutcome:
        _check(response.error_code)
        outcome = CallOutcome.none()
        outcome.results["token"] = IssuedToken(
            token_id=response.token_id,
            hmac=bytes(response.hmac),
            owner=_principal(response.principal_type, response.principal_name),
            requester=_requester(response),
            renewers=wanted,
            issued_ms=response.issue_timestamp_ms,
            expires_ms=response.expiry_timestamp_ms,
            max_ms=response.max_timestamp_ms,
        )
        return outcome

    return Exchange(request=request, answer=CreateDelegationTokenResponse, read=read)


def renew_token(hmac: bytes, period_ms: int) -> Exchange:
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return Exchange(request=request, answer=RenewDelegationTokenResponse, read=_expiry)


def expire_token(hmac: bytes, period_ms: int) -> Exchange:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return Exchange(request=request, answer=ExpireDelegationTokenResponse, read=_expiry)


def _expiry(response: RenewDelegationTokenResponse | ExpireDelegationTokenResponse) -> CallOutcome:
    _check(response.error_code)
    outcome = CallOutcome.none()
    outcome.results["expires_ms"] = response.expiry_timestamp_ms
    return outcome


def describe_tokens(owners: Iterable[str] | None) -> Exchange:
    """Returns the exchange. Raises ConfigError for a name that is no principal."""
    named = None if owners is None else [_parts(owner) for owner in owners]
    request = DescribeDelegationTokenRequest(
        owners=None
        if named is None
        else [
            DescribeDelegationTokenOwner(principal_type=type_, principal_name=name) for type_, name in named
        ]
    )

    def read(response: DescribeDelegationTokenResponse) -> CallOutcome:
        _check(response.error_code)
        outcome = CallOutcome.none()
        for token in response.tokens:
            outcome.results[token.token_id] = IssuedToken(
                token_id=token.token_id,
                hmac=bytes(token.hmac),
                owner=_principal(token.principal_type, token.principal_name),
                requester=_requester(token),
                renewers=tuple(
                    _principal(renewer.principal_type, renewer.principal_name) for renewer in token.renewers
                ),
                issued_ms=token.issue_timestamp,
                expires_ms=token.expiry_timestamp,
                max_ms=token.max_timestamp,
            )
        return outcome

    return Exchange(request=request, answer=DescribeDelegationTokenResponse, read=read)


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code))


def _parts(principal: str) -> tuple[str, str]:
    type_, colon, name = principal.partition(":")
    if not (type_ and colon and name):
        raise ConfigError(f"{principal!r:.250} is no principal: write User:NAME")
    return type_, name


def _principal(type_: str, name: str) -> str:
    return f"{type_}:{name}" if name else ""


def _requester(token: CreateDelegationTokenResponse | DescribedDelegationToken) -> str:
    return _principal(token.token_requester_principal_type, token.token_requester_principal_name)
