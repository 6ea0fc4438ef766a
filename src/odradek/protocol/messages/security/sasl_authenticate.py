"""SaslAuthenticate (key 36): one step of a SASL exchange.

Versions
     1  response: how long the session lasts before it must authenticate again (KIP-368)
     2  flexible
"""

from __future__ import annotations

from odradek.protocol.schema import Message, bytestring, int16, int64, string


class SaslAuthenticateRequest(Message, api=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytestring("0+")


class SaslAuthenticateResponse(Message, api=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytestring("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
