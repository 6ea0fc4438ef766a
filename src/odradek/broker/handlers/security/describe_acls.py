"""DescribeAcls (29). Versions 1-3: without an authorizer there are no ACLs to describe: SECURITY_DISABLED."""

from __future__ import annotations

from odradek.broker.authorization import NO_AUTHORIZER
from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.security.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


SERVED = ApiHandler(29, handle)
