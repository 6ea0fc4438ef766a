"""DescribeUserScramCredentials (key 50): mechanisms and iterations, never the secrets, of SCRAM users
(KIP-554).

One version. Null users for all.
"""

from __future__ import annotations

from odradek.protocol.schema import Message, Struct, array, int8, int16, int32, string


class UserName(Struct):
    name: str = string("0+")


class DescribeUserScramCredentialsRequest(Message, api=50, versions="0", flexible="0+"):
    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = int8("0+")
    iterations: int = int32("0+")


class DescribeUserScramCredentialsResult(Struct):
    user: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo, "0+")


class DescribeUserScramCredentialsResponse(Message, api=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")
