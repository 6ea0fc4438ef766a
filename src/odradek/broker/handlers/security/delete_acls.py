"""DeleteAcls (31). Versions 1-3: without an authorizer there are no ACLs to delete: SECURITY_DISABLED for each filter."""

from __future__ import annotations

from odradek.broker.authorization import NO_AUTHORIZER
from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(broker: BrokerContext, context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])


SERVED = ApiHandler(31, handle)
