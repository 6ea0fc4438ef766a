"""The parts before the body of every request and response: size, then header.

Three header forms are in use. Request header 1 and response header 0 go with non-flexible versions; request
header 2 and response header 1 add an empty section of tagged fields and go with flexible ones. Two
exceptions, both so that brokers and clients of different ages understand each other: the client id keeps its
two-byte length in every version, and ApiVersions responses always have response header 0.

Read and written by hand: every request passes here.
"""

from __future__ import annotations

import struct
from struct import Struct as Layout
from typing import Final, NamedTuple

from odradek.protocol.api import API_VERSIONS_KEY, APIS, api_by_key
from odradek.protocol.compiled import ANY_COUNT, Steps, decode, encode_chunks, encode_steps
from odradek.protocol.errors import Fault, MalformedMessage, UnencodableMessage
from odradek.protocol.schema import Buffer, Message
from odradek.protocol.wire import skip_tags

_SIZE: Final = Layout(">i")
_SIZE_AND_CORRELATION: Final = Layout(">ii")
_REQUEST_START: Final = Layout(">hhih")
_SIZED_REQUEST_START: Final = Layout(">ihhih")
_CORRELATION: Final = Layout(">i")
SIZE_BYTES: Final = 4


class RequestHeader(NamedTuple):
    """The sender of a request, its API and version. `client_id` is the client's own name, for logs and quotas."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """Reads the header of a frame (without the size); returns (header, position of the body). Raises MalformedMessage.

    An unknown API or version is not an error here: the caller answers it. For an unknown API the position is
    that after the client id, since it is unknown whether tagged fields follow.
    """
    start = position
    try:
        key, version, correlation_id, length = _REQUEST_START.unpack_from(buffer, position)
        position += 10
        client_id = None
        if length >= 0:
            end = position + length
            if end > len(buffer):
                raise Fault("the client id reaches past the end")
            client_id = str(buffer[position:end], "utf-8")
            position = end
        api = APIS.get(key)
        if api is not None and api.flexible_from is not None and version >= api.flexible_from:
            if buffer[position]:
                position = skip_tags(buffer, position, len(buffer))
            else:
                position += 1
        # At half the price of `RequestHeader(...)`, which is a function of Python.
        return tuple.__new__(RequestHeader, (key, version, correlation_id, client_id)), position
    except (Fault, IndexError, struct.error, UnicodeDecodeError) as exception:
        problem = str(exception) if isinstance(exception, Fault) else "the header is cut off or not text"
    raise MalformedMessage(problem, path="RequestHeader", position=start)


def encode_request_chunks(header: RequestHeader, message: Message) -> list[Buffer]:
    """Returns a request with its size in front, ready to send; large records stay buffers of their own."""
    api = api_by_key(header.api_key)
    client_id = b"" if header.client_id is None else header.client_id.encode()
    if len(client_id) > 32767:
        raise UnencodableMessage("longer than 32767 bytes", path="RequestHeader.client_id")
    head = bytearray(
        _SIZED_REQUEST_START.pack(
            0,
            header.api_key,
            header.api_version,
            header.correlation_id,
            -1 if header.client_id is None else len(client_id),
        )
    )
    head += client_id
    if api.is_flexible(header.api_version):
        head.append(0)
    return _with_size(encode_chunks(message, header.api_version, head))


def encode_flexible_request(header: RequestHeader, body: bytes) -> bytes:
    """Returns a request of a flexible version with its size in front, whose body is encoded already."""
    client_id = None if header.client_id is None else header.client_id.encode()
    length = 0 if client_id is None else len(client_id)
    start = _SIZED_REQUEST_START.pack(
        _SIZED_REQUEST_START.size - 4 + length + 1 + len(body),
        header.api_key,
        header.api_version,
        header.correlation_id,
        -1 if client_id is None else length,
    )
    return b"".join((start, client_id or b"", b"\0", body))


def encode_request(header: RequestHeader, message: Message) -> bytes:
    """Returns a request with its size in front, in one piece."""
    return b"".join(encode_request_chunks(header, message))


def encode_response(
    api_key: int, version: int, correlation_id: int, message: Message, elements_max: int = ANY_COUNT
) -> list[Buffer]:
    """Returns a response with its size in front; large records stay buffers of their own, in order. Raises like
    `encode_chunks`."""
    head = _response_head(api_key, version, correlation_id)
    return _with_size(encode_chunks(message, version, head, elements_max))


def encode_response_steps(
    api_key: int, version: int, correlation_id: int, message: Message
) -> Steps[list[Buffer]]:
    """Does what `encode_response` does, in steps, for a large message."""
    head = _response_head(api_key, version, correlation_id)
    chunks = yield from encode_steps(message, version, head)
    return _with_size(chunks)


def _response_head(api_key: int, version: int, correlation_id: int) -> bytearray:
    head = bytearray(_SIZE_AND_CORRELATION.pack(0, correlation_id))
    if _tagged_response_header(api_key, version):
        head.append(0)
    return head


def decode_response(api_key: int, version: int, buffer: Buffer, position: int = 0) -> tuple[int, Message]:
    """Reads a response frame (without the size); returns (correlation id, message). Raises MalformedMessage."""
    correlation_id, position = decode_response_header(api_key, version, buffer, position)
    message, _ = decode(api_by_key(api_key).response, version, buffer, position)
    return correlation_id, message


def decode_response_header(api_key: int, version: int, buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Returns (correlation id, position of the body). Raises MalformedMessage."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(buffer, position)
        end = position + 4
        if _tagged_response_header(api_key, version):
            end = skip_tags(buffer, end, len(buffer))
        return correlation_id, end
    except (Fault, IndexError, struct.error):
        pass
    raise MalformedMessage("the header is cut off", path="ResponseHeader", position=position)


def correlation_id_of(buffer: Buffer, position: int = 0) -> int:
    """Returns the correlation id of a response frame (without the size), before its API is known. Raises
    MalformedMessage."""
    if len(buffer) - position < 4:
        raise MalformedMessage("the header is cut off", path="ResponseHeader", position=position)
    return int.from_bytes(buffer[position : position + 4], "big", signed=True)


def _tagged_response_header(api_key: int, version: int) -> bool:
    return api_key != API_VERSIONS_KEY and api_by_key(api_key).is_flexible(version)


def _with_size(chunks: list[Buffer]) -> list[Buffer]:
    """Fills in the size, for which the first chunk has left room."""
    first = chunks[0]
    assert isinstance(first, bytearray)
    size = len(first) if len(chunks) == 1 else sum(map(len, chunks))
    _SIZE.pack_into(first, 0, size - SIZE_BYTES)
    return chunks
