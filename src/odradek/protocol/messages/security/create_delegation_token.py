"""CreateDelegationToken (key 38): a token that lets others act for its owner until it expires (KIP-48, KIP-373).

Versions
     1  the first that is supported
     2  flexible
     3  request: the owner, where the requester is another; response: the requester
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, bytestring, int16, int32, int64, string


class CreatableRenewer(Struct):
    principal_type: str = string("0+")
    principal_name: str = string("0+")


class CreateDelegationTokenRequest(Message, api=38, versions="1-3", flexible="2+"):
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewer] = array(CreatableRenewer, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, api=38, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = bytestring("0+")
    throttle_time_ms: int = int32("0+")
