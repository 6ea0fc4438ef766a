"""ExpireDelegationToken (40). Versions 1-2: a token ends after a period, or at once for a negative one (KIP-48).

Its owner and its renewers may ask. Answered when every broker in service knows it. Connections that logged in
with it stay open until their session ends, at the time that the login response named. The errors are listed
in `broker/security/delegation.py`.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.security.delegation import change_token
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.security.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from odradek.security.sasl.token_decisions import shortened


async def handle(
    broker: BrokerContext, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    period_ms = request.expiry_time_period_ms
    try:
        token = await change_token(
            broker,
            context,
            bytes(request.hmac),
            lambda token, terms, now_ms: shortened(token, period_ms, now_ms),
        )
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    expires_ms = period_ms if token is None else token.expires_ms  # an expired one: so Kafka does
    return ExpireDelegationTokenResponse(error_code=ErrorCode.NONE, expiry_timestamp_ms=expires_ms)


SERVED = ApiHandler(40, handle)
