"""DeleteGroups (42): delete groups without members, and their offsets. Versions 0-3; v3 has error
messages."""

from __future__ import annotations

from odradek.broker.handlers.share_deletion import forget_group
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    turn = broker.turns.begin()
    results = []
    for group_id in await turn.unique(request.groups_names):
        await turn.step()
        results.append(await _delete(broker, group_id))
    return DeleteGroupsResponse(results=results)


async def _delete(broker: BrokerContext, group_id: str) -> DeletableGroupResult:
    try:
        await forget_group(broker, group_id)
        await broker.groups.delete_group(group_id)
    except KafkaError as error:
        return DeletableGroupResult(group_id=group_id, error_code=error.code, error_message=error.message)
    return DeletableGroupResult(group_id=group_id, error_code=ErrorCode.NONE)


SERVED = ApiHandler(42, handle)
