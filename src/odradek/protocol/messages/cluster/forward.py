"""Forward (key 10001, ours): a client's request as a broker passes it on to the controller, and the answer on its way back.

What Kafka calls an envelope (KIP-590); ours also has the version of the cluster image that the response is
part of. `request_data` and `response_data` are whole frames without their length: header and body, as the
client sent them and will get them. The error is about the passing on alone.

Versions
     0  the first
"""

from __future__ import annotations

from odradek.protocol.schema import Message, bytestring, int8, int16, int32, int64, string


class ForwardRequest(Message, api=10001, versions="0", flexible="0+"):
    request_data: bytes = bytestring("0+")
    principal: str = string("0+")
    client_host: str = string("0+")
    authentication: int = int8("0+", default=0, tag=0)
    """How the asker logged in: 0 not at all, 1 as itself, 2 with a delegation token."""


class ForwardResponse(Message, api=10001, versions="0", flexible="0+"):
    error_code: int = int16("0+")
    response_data: bytes | None = bytestring("0+", nullable="0+", default=None)
    controller_epoch: int = int32("0+", default=-1)
    image_version: int = int64("0+", default=-1)
