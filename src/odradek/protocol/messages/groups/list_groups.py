"""ListGroups (key 16): the groups that this broker coordinates.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  flexible
     4  filter by state; response: the state (KIP-518)
     5  filter by type; response: the type (KIP-848)
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, string


class ListGroupsRequest(Message, api=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")
