"""ConsumerGroupDescribe (69): epochs, members and assignments of consumer groups (KIP-848). Versions 0-1."""

from __future__ import annotations

from odradek.broker.requests.authorization import GROUP_OPERATIONS
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def handle(
    broker: BrokerContext, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
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
    return ConsumerGroupDescribeResponse(groups=groups)


async def _described(broker: BrokerContext, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return await broker.groups.describe_consumer(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


SERVED = ApiHandler(69, handle)
