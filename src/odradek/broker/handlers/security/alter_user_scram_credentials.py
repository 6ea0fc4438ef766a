"""AlterUserScramCredentials (51). Version 0: credentials are not kept while no client can log in with them (KIP-554).

What is to be deleted does not exist (RESOURCE_NOT_FOUND); what is to be added is refused with UNSUPPORTED_SASL_MECHANISM rather
than stored where nothing would ever check it.
"""

from __future__ import annotations

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
)

_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


async def handle(
    broker: BrokerContext, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    turn = broker.turns.begin()
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for added in request.upsertions:
        await turn.step()
        mechanism = _MECHANISMS.get(added.mechanism, f"mechanism {added.mechanism}")
        results[added.name] = AlterUserScramCredentialsResult(
            user=added.name,
            error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            error_message=f"this broker does not authenticate clients yet, by {mechanism} or otherwise",
        )
    for gone in request.deletions:
        await turn.step()
        results.setdefault(gone.name, _not_deleted(gone))
    return AlterUserScramCredentialsResponse(results=list(results.values()))


def _not_deleted(gone: ScramCredentialDeletion) -> AlterUserScramCredentialsResult:
    if gone.mechanism not in _MECHANISMS:
        code, message = ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"mechanism {gone.mechanism} is not known"
    elif not gone.name:
        code, message = ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty"
    else:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"user {gone.name!r} has no such credentials"
    return AlterUserScramCredentialsResult(user=gone.name, error_code=code, error_message=message)


SERVED = ApiHandler(51, handle, is_quick=True)
