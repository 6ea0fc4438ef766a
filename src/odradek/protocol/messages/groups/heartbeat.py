"""Heartbeat (key 12): a member of a classic group is alive, and learns whether the group rebalances.

Versions
     1  response: throttle time
     2  quota violations are answered first and throttled afterwards (KIP-219)
     3  static members (KIP-345)
     4  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, string


class HeartbeatRequest(Message, api=12, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
