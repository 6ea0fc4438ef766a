"""ListGroups (16): the groups that this broker coordinates, of every kind. Versions 0-5.

States are compared without regard to case, as types are; an unknown one matches nothing.
"""

from __future__ import annotations

from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.groups.descriptions import Listed
from odradek.model.errors import KafkaError
from odradek.protocol.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(
    broker: BrokerContext, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    turn = broker.turns.begin()
    try:
        groups = await broker.groups.list_all(turn)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    states = frozenset(await turn.map(str.lower, request.states_filter))
    kinds = frozenset(await turn.map(str.lower, request.types_filter))
    wanted = [
        group
        for group in groups
        if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
    ]
    return ListGroupsResponse(groups=await turn.map(_entry, wanted))


def _entry(group: Listed) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.kind,
    )


SERVED = ApiHandler(16, handle)
