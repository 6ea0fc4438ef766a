"""UnregisterController (key 94): the cluster forgets a KRaft controller that will not come back. One version."""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, string


class UnregisterControllerRequest(Message, api=94, versions="0", flexible="0+"):
    controller_id: int = int32("0+")


class UnregisterControllerResponse(Message, api=94, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
