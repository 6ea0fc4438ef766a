"""CreateAcls (30). Versions 1-3: without an authorizer no one would heed an ACL: SECURITY_DISABLED for each."""

from __future__ import annotations

from odradek.broker.authorization import NO_AUTHORIZER
from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(broker: BrokerContext, context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused for _ in request.creations])


SERVED = ApiHandler(30, handle)
