"""SaslAuthenticate (36). Versions 0-2. Logins are served before the dispatcher (`broker/security/login.py`): what comes here is
not part of one: ILLEGAL_SASL_STATE."""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)


def handle(
    broker: BrokerContext, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate came without a SaslHandshake, or over a listener without SASL",
    )


SERVED = ApiHandler(36, handle)
