"""CreateAcls (30). Versions 1-3: access rules, each valid or refused by itself; one that is there already is no error.

Answered when every broker in service goes by them. Without an authorizer no one would heed an ACL: SECURITY_DISABLED for each.
POLICY_VIOLATION when the cluster would have more than its registry takes.
"""

from __future__ import annotations

from odradek.broker.access.authorizers import check_keeps_acls
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import ACL_DOCUMENTS, part_of
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.security.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from odradek.security.acls import Acl, new_acl

_MADE = AclCreationResult(error_code=ErrorCode.NONE, error_message=None)


async def handle(
    broker: BrokerContext, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    try:
        check_keeps_acls(broker)
    except KafkaError as error:
        return CreateAclsResponse(results=[_refused(error)] * len(request.creations))
    turn = broker.turns.begin()
    results = [_MADE] * len(request.creations)
    parts: dict[int, list[tuple[int, Acl]]] = {}
    for number, creation in enumerate(request.creations):
        await turn.step()
        try:
            acl = _acl(creation)
        except KafkaError as error:
            results[number] = _refused(error)
            continue
        parts.setdefault(part_of(acl.pattern), []).append((number, acl))
    for part, wanted in parts.items():
        new = frozenset(acl for _, acl in wanted)
        try:
            await broker.controller.alter(ACL_DOCUMENTS[part], new.union)
        except KafkaError as error:
            for number, _ in wanted:
                results[number] = _refused(error)
    if parts:
        await broker.controller.seen_by_all()
    return CreateAclsResponse(results=results)


def _acl(creation: AclCreation) -> Acl:
    return new_acl(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _refused(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message)


SERVED = ApiHandler(30, handle)
