"""LeaveGroup (13): members leave a classic group; several at once from version 3 on. Versions 0-5."""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import KafkaError
from odradek.protocol.messages.groups.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_SINCE_BATCHES: Final = 3


async def handle(
    broker: BrokerContext, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    batched = context.api_version >= _SINCE_BATCHES
    if not batched:
        request = request.replace(members=[MemberIdentity(member_id=request.member_id)])
    try:
        response = await broker.groups.leave(request)
    except KafkaError as error:
        return LeaveGroupResponse(error_code=error.code)
    if batched:
        return response
    return LeaveGroupResponse(error_code=response.members[0].error_code)


SERVED = ApiHandler(13, handle)
