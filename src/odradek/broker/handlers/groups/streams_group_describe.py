"""StreamsGroupDescribe (89): topology, epochs, members and tasks of streams groups (KIP-1071). Versions 0-1.

No description of a topology is stored (KIP-1331): a request for one learns this, as from a Kafka broker without a plug-in.
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.authorization import GROUP_OPERATIONS
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

_NOT_STORED: Final = 1


async def handle(
    broker: BrokerContext, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    turn = broker.turns.begin()
    groups = []
    for group_id in dict.fromkeys(request.group_ids):
        await turn.step()
        group = await _described(broker, group_id)
        if group.error_code == ErrorCode.NONE:
            if request.include_authorized_operations:
                group = group.replace(authorized_operations=GROUP_OPERATIONS)
            if request.include_topology_description:
                group = group.replace(topology_description_status=_NOT_STORED)
        groups.append(group)
    return StreamsGroupDescribeResponse(groups=groups)


async def _described(broker: BrokerContext, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        return await broker.groups.describe_streams(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)


SERVED = ApiHandler(89, handle)
