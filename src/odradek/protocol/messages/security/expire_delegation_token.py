"""ExpireDelegationToken (key 40): a delegation token counts until then, or no more (KIP-48). The token is named by its HMAC.

Versions
     1  the first that is supported
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, bytestring, int16, int32, int64


class ExpireDelegationTokenRequest(Message, api=40, versions="1-2", flexible="2+"):
    hmac: bytes = bytestring("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, api=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
