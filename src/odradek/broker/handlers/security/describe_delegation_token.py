"""DescribeDelegationToken (41). Versions 1-3: the tokens that the asker may see, with their secrets (KIP-48).

Those that it owns or may renew; others with DESCRIBE on the token or DESCRIBE_TOKENS on its owner. No owners: no tokens.
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED and DELEGATION_TOKEN_AUTH_DISABLED as in CreateDelegationToken.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.security.delegation import enabled_terms
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.protocol.messages.security.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from odradek.security.sasl.delegation_tokens import DelegationToken
from odradek.security.sasl.token_decisions import DelegationTerms, check_may_ask

_SINCE_REQUESTER: Final = 3


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    try:
        check_may_ask(context.requester)
        terms = enabled_terms(broker.config)
    except KafkaError as error:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[])
    turn = broker.turns.begin()
    owners: set[str] = set()
    for owner in request.owners or ():
        await turn.step()
        owners.add(f"{owner.principal_type}:{owner.principal_name}")
    tokens = []
    now_ms = broker.runtime.clock.wall_ms()
    for token in broker.image.delegation_tokens.values():
        await turn.step()
        is_asked_for = request.owners is None or token.owner in owners
        if is_asked_for and not token.is_over(now_ms) and _may_see(context, token):
            tokens.append(_described(token, terms, context.api_version))
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=tokens)


def _may_see(context: RequestContext, token: DelegationToken) -> bool:
    access = context.access
    if access is None or token.may_be_changed_by(context.principal):
        return True
    return access.may_quietly(
        AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner
    ) or access.may_quietly(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id)


def _described(token: DelegationToken, terms: DelegationTerms, version: int) -> DescribedDelegationToken:
    owner_type, _, owner_name = token.owner.partition(":")
    requester_type, _, requester_name = token.requester.partition(":")
    renewers = [renewer.partition(":") for renewer in token.renewers]
    described = DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=terms.hmac_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=type_, principal_name=name)
            for type_, _, name in renewers
        ],
    )
    if version < _SINCE_REQUESTER:
        return described
    return described.replace(
        token_requester_principal_type=requester_type, token_requester_principal_name=requester_name
    )


SERVED = ApiHandler(41, handle, is_quick=True)
