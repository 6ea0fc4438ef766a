"""ListGroups (16): the groups that this broker coordinates, of every kind. Versions 0-5.

States are compared without regard to case, as types are; an unknown one matches nothing.
"""

from __future__ import annotations

from odradek.broker.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.errors import KafkaError
from odradek.protocol.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(
    broker: BrokerContext, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    try:
        groups = await broker.groups.list_all()
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    turn = broker.turns.begin()
    states = frozenset(await turn.map(str.lower, request.states_filter))
    kinds = frozenset(await turn.map(str.lower, request.types_filter))
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ]
    )


SERVED = ApiHandler(16, handle)
