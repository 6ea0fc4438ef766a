"""CreateDelegationToken (38). Versions 1-3: a token that others can log in with, and then act for its owner (KIP-48).

Answered when every broker in service knows it. DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for clients that did not log in, or did
with a token; DELEGATION_TOKEN_AUTH_DISABLED without `delegation.token.secret.key`; DELEGATION_TOKEN_AUTHORIZATION_FAILED for
a token of another user without CREATE_TOKENS on it; INVALID_PRINCIPAL_TYPE for an owner or renewer that is no user.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.security.delegation import enabled_terms
from odradek.cluster.documents import DELEGATION_TOKENS
from odradek.config.sasl import SCRAM_MECHANISMS
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.acls import AclOperation, AclResourceType
from odradek.protocol.messages.security.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from odradek.security.sasl.delegation_tokens import DelegationToken
from odradek.security.sasl.token_decisions import (
    RENEWERS_MAX,
    DelegationTerms,
    check_may_ask,
    checked_user,
    new_token,
    new_token_id,
    with_token,
)

_SINCE_REQUESTER: Final = 3


async def handle(
    broker: BrokerContext, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    owner = context.principal
    try:
        check_may_ask(context.requester)
        if request.owner_principal_name:
            owner = checked_user(request.owner_principal_type, request.owner_principal_name)
        _check_allowed(context, owner)
        terms = enabled_terms(broker.config)
        token = await _make(broker, context, request, owner, terms)
    except KafkaError as error:
        return _response(context, error.code, owner)
    response = _response(context, ErrorCode.NONE, token.owner)
    return response.replace(
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=terms.hmac_of(token.token_id),
    )


def _check_allowed(context: RequestContext, owner: str) -> None:
    if owner == context.principal or context.access is None:
        return
    if not context.access.may(AclOperation.CREATE_TOKENS, AclResourceType.USER, owner):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)


async def _make(
    broker: BrokerContext,
    context: RequestContext,
    request: CreateDelegationTokenRequest,
    owner: str,
    terms: DelegationTerms,
) -> DelegationToken:
    if len(request.renewers) > RENEWERS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a token may have {RENEWERS_MAX} renewers")
    renewers = [checked_user(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
    now_ms = broker.runtime.clock.wall_ms()
    uuid = broker.runtime.entropy.uuid
    token_id = new_token_id(uuid)
    salts = {mechanism: uuid().bytes for mechanism in SCRAM_MECHANISMS}
    token = await broker.runtime.offload.run(
        lambda: new_token(
            terms,
            token_id=token_id,
            salts=salts,
            owner=owner,
            requester=context.principal,
            renewers=renewers,
            lifetime_ms=request.max_lifetime_ms,
            now_ms=now_ms,
        )
    )
    await broker.controller.alter(DELEGATION_TOKENS, lambda before: with_token(before, token, now_ms))
    await broker.controller.seen_by_all()
    return token


def _response(context: RequestContext, code: ErrorCode, owner: str) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner_type,
        principal_name=owner_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
    if context.api_version < _SINCE_REQUESTER:
        return response
    requester_type, _, requester_name = context.principal.partition(":")
    return response.replace(
        token_requester_principal_type=requester_type, token_requester_principal_name=requester_name
    )


SERVED = ApiHandler(38, handle)
