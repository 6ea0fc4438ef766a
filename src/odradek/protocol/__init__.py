"""Kafka's wire protocol: message declarations compiled to codecs, request and response headers, framing. No
I/O.

Messages themselves are imported from their own modules, `odradek.protocol.messages.<api>`, or reached through
`APIS[key].request` and `.response`; importing this package loads none of them.
"""

from odradek.protocol.api import APIS, Api, api_by_key, api_by_name, api_of
from odradek.protocol.compiled import Steps, decode, decode_steps, encode, encode_chunks
from odradek.protocol.errors import (
    FieldNotInVersion,
    FrameTooLarge,
    InvalidFrame,
    MalformedMessage,
    TooManyElements,
    UnencodableMessage,
    UnknownVersion,
)
from odradek.protocol.framing import FrameReader
from odradek.protocol.headers import (
    RequestHeader,
    correlation_id_of,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_flexible_request,
    encode_request,
    encode_request_chunks,
    encode_response,
    encode_response_steps,
)
from odradek.protocol.schema import Buffer, Message, Struct
from odradek.protocol.versions import VersionRange

__all__ = [
    "APIS",
    "Api",
    "Buffer",
    "FieldNotInVersion",
    "FrameReader",
    "FrameTooLarge",
    "InvalidFrame",
    "MalformedMessage",
    "Message",
    "RequestHeader",
    "Steps",
    "Struct",
    "TooManyElements",
    "UnencodableMessage",
    "UnknownVersion",
    "VersionRange",
    "api_by_key",
    "api_by_name",
    "api_of",
    "correlation_id_of",
    "decode",
    "decode_request_header",
    "decode_response",
    "decode_response_header",
    "decode_steps",
    "encode",
    "encode_chunks",
    "encode_flexible_request",
    "encode_request",
    "encode_request_chunks",
    "encode_response",
    "encode_response_steps",
]
