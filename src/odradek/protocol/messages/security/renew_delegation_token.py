"""RenewDelegationToken (key 39): a delegation token counts for longer (KIP-48). The token is named by its HMAC.

Versions
     1  the first that is supported
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, bytestring, int16, int32, int64


class RenewDelegationTokenRequest(Message, api=39, versions="1-2", flexible="2+"):
    hmac: bytes = bytestring("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, api=39, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
