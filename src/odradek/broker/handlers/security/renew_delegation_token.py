"""RenewDelegationToken (39). Versions 1-2: a token counts for another period, at most until its own end (KIP-48).

Its owner and its renewers may ask. Answered when every broker in service knows it. The errors are listed in
`broker/security/delegation.py`.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.security.delegation import change_token
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.security.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from odradek.security.sasl.token_decisions import renewed


async def handle(
    broker: BrokerContext, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    period_ms = request.renew_period_ms
    try:
        token = await change_token(
            broker,
            context,
            bytes(request.hmac),
            lambda token, terms, now_ms: renewed(token, terms, period_ms, now_ms),
        )
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    assert token is not None
    return RenewDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=token.expires_ms)


SERVED = ApiHandler(39, handle)
