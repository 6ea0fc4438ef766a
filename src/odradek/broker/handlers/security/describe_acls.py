"""DescribeAcls (29). Versions 1-3: the access rules that a filter selects, as far as this broker knows them.

Without an authorizer there are none to describe: SECURITY_DISABLED.
"""

from __future__ import annotations

from odradek.broker.access.authorizers import check_keeps_acls
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.security.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from odradek.security.acls import AclPattern, new_filter


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    try:
        check_keeps_acls(broker)
        wanted = new_filter(
            resource_type=request.resource_type_filter,
            name=request.resource_name_filter,
            pattern_type=request.pattern_type_filter,
            principal=request.principal_filter,
            host=request.host_filter,
            operation=request.operation,
            permission=request.permission_type,
        )
    except KafkaError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    turn = broker.turns.begin()
    resources: dict[AclPattern, DescribeAclsResource] = {}
    for part in broker.image.acls:
        for acl in part:
            await turn.step()
            if wanted.selects(acl):
                pattern = acl.pattern
                resource = resources.get(pattern)
                if resource is None:
                    resource = resources[pattern] = DescribeAclsResource(
                        resource_type=pattern.resource_type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern_type,
                        acls=[],
                    )
                resource.acls.append(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                )
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values())
    )


SERVED = ApiHandler(29, handle, is_quick=True)
