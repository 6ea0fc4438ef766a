"""DescribeGroups (15): state and members of classic groups. Versions 0-6.

A group that does not exist, or is of another kind, is in state Dead; from version 6 on it is GROUP_ID_NOT_FOUND as well
(KIP-1043).
"""

from __future__ import annotations

from typing import Final

from odradek.broker.requests.authorization import GROUP_OPERATIONS, NOT_ASKED
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.classic.states import ClassicGroupState
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol.messages.groups.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_SINCE_NOT_FOUND: Final = 6


async def handle(
    broker: BrokerContext, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    turn = broker.turns.begin()
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in dict.fromkeys(request.groups):
        await turn.step()
        groups.append(await _describe(broker, group_id, context.api_version, operations))
    return DescribeGroupsResponse(groups=groups)


async def _describe(broker: BrokerContext, group_id: str, version: int, operations: int) -> DescribedGroup:
    try:
        group = await broker.groups.describe_classic(group_id)
    except KafkaError as error:
        return _refused(group_id, error, version)
    return DescribedGroup(
        group_id=group_id,
        authorized_operations=operations,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def _refused(group_id: str, error: KafkaError, version: int) -> DescribedGroup:
    if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
        return DescribedGroup(group_id=group_id, error_code=error.code)
    if version < _SINCE_NOT_FOUND:
        return DescribedGroup(group_id=group_id, group_state=ClassicGroupState.DEAD.value)
    return DescribedGroup(
        group_id=group_id,
        group_state=ClassicGroupState.DEAD.value,
        error_code=error.code,
        error_message=error.message,
    )


SERVED = ApiHandler(15, handle)
