"""JoinGroup (11): enter a classic group; answered when its next generation is formed. Versions 0-9."""

from __future__ import annotations

from typing import Final

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.broker.coordinators.group_requests import caller
from odradek.model.errors import KafkaError
from odradek.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse

_SINCE_NULL_PROTOCOL: Final = 7


async def handle(
    broker: BrokerContext, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    try:
        response = await broker.groups.join(request, caller(context))
    except KafkaError as error:
        response = JoinGroupResponse(error_code=error.code, member_id=request.member_id, protocol_name=None)
    if context.api_version < _SINCE_NULL_PROTOCOL and response.protocol_name is None:
        return response.replace(protocol_name="")
    return response


SERVED = ApiHandler(11, handle)
