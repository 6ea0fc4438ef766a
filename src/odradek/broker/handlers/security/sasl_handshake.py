"""SaslHandshake (17). Versions 0-1. Logins are served before the dispatcher (`broker/security/login.py`): what comes here comes
over a listener without SASL, or too soon after the last login: ILLEGAL_SASL_STATE."""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(
    broker: BrokerContext, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


SERVED = ApiHandler(17, handle)
