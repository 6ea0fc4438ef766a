"""DeleteAcls (31). Versions 1-3: deletes the access rules that match the filters, and returns them.

Answered when every broker in service goes without them. An ACL that several filters select is named for each of them. Without
an authorizer there is nothing to delete: SECURITY_DISABLED for each filter.
"""

from __future__ import annotations

from odradek.broker.access.authorizers import check_keeps_acls
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.cluster.documents import ACL_DOCUMENTS, AclPart
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.security.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from odradek.runtime.turns import Turn
from odradek.security.acls import Acl, AclFilter, new_filter


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    try:
        check_keeps_acls(broker)
    except KafkaError as error:
        return DeleteAclsResponse(filter_results=[_refused(error)] * len(request.filters))
    turn = broker.turns.begin()
    outcomes: list[dict[Acl, None] | KafkaError] = []
    filters: list[tuple[int, AclFilter]] = []
    for number, acl_filter in enumerate(request.filters):
        await turn.step()
        outcomes.append({})
        try:
            filters.append((number, _filter(acl_filter)))
        except KafkaError as error:
            outcomes[number] = error.as_outcome()
    deletion = _Deletion(turn, filters)
    for document in ACL_DOCUMENTS if filters else ():
        try:
            await broker.controller.alter_in_turns(document, deletion.without)
        except KafkaError as error:
            for number, _ in filters:
                outcomes[number] = error.as_outcome()
            continue
        for number, acl in deletion.selected:
            outcome = outcomes[number]
            if isinstance(outcome, dict):
                outcome[acl] = None
    if deletion.has_deleted:
        await broker.controller.seen_by_all()
    results = await turn.map(_result, outcomes)
    return DeleteAclsResponse(filter_results=results)


class _Deletion:
    """The ACLs of one part that the filters select."""

    def __init__(self, turn: Turn, filters: list[tuple[int, AclFilter]]) -> None:
        self._turn = turn
        self._filters = filters
        self.selected: list[tuple[int, Acl]] = []
        self.has_deleted = False

    async def without(self, before: AclPart) -> AclPart:
        self.selected = []
        for acl in before:
            await self._turn.step()
            self.selected += [(number, acl) for number, wanted in self._filters if wanted.selects(acl)]
        self.has_deleted = self.has_deleted or bool(self.selected)
        return before.difference(acl for _, acl in self.selected)


def _filter(acl_filter: DeleteAclsFilter) -> AclFilter:
    return new_filter(
        resource_type=acl_filter.resource_type_filter,
        name=acl_filter.resource_name_filter,
        pattern_type=acl_filter.pattern_type_filter,
        principal=acl_filter.principal_filter,
        host=acl_filter.host_filter,
        operation=acl_filter.operation,
        permission=acl_filter.permission_type,
    )


def _result(outcome: dict[Acl, None] | KafkaError) -> DeleteAclsFilterResult:
    if isinstance(outcome, KafkaError):
        return _refused(outcome)
    return DeleteAclsFilterResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_code=ErrorCode.NONE,
                error_message=None,
                resource_type=acl.pattern.resource_type,
                resource_name=acl.pattern.name,
                pattern_type=acl.pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in outcome
        ],
    )


def _refused(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message)


SERVED = ApiHandler(31, handle)
