"""DeleteGroups (key 42): delete groups without members (KIP-229).

Versions
     1  quota violations are answered first and throttled afterwards (KIP-219)
     2  flexible
     3  response: a message for each refused group
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int16, int32, string


class DeleteGroupsRequest(Message, api=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
