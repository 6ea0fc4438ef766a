"""ShareGroupDescribe (77): epochs, members and assignments of share groups (KIP-932). Version 1."""

from __future__ import annotations

from odradek.broker.requests.authorization import GROUP_OPERATIONS
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.share.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    turn = broker.turns.begin()
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        await turn.step()
        groups.append(await _described(broker, group_id))
    if request.include_authorized_operations:
        groups = [
            group.replace(authorized_operations=GROUP_OPERATIONS)
            if group.error_code == ErrorCode.NONE
            else group
            for group in groups
        ]
    return ShareGroupDescribeResponse(groups=groups)


async def _described(broker: BrokerContext, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return await broker.groups.describe_share(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


SERVED = ApiHandler(77, handle)
