"""(message, version) -> compiled codec, made on first use; and what its exceptions mean.

Compiled code carries no error handling for the common case. When it raises, the traceback has the function
and the line, the line determines the field, and the frame's variables the element and the byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator
from types import FrameType, TracebackType
from typing import Any, Final, TypeVar

from odradek.protocol.codegen import Place, Writer
from odradek.protocol.decoder import DecoderSource
from odradek.protocol.encoder import EncoderSource
from odradek.protocol.errors import (
    Fault,
    FieldNotInVersion,
    MalformedMessage,
    UnencodableMessage,
    UnknownVersion,
)
from odradek.protocol.schema import Buffer, Message

M = TypeVar("M", bound=Message)
T = TypeVar("T")

ANY_COUNT: Final = 2**63
"""The count for all elements."""
Steps = Generator[None, None, T]
"""Work that yields now and then, so that other work can run."""

_INDEX = re.compile(r"\{(\w+)(?::(\w+))?\}")
_PLACES: Final[dict[str, list[tuple[Place, ...]]]] = {}
"""The places that each line of a compiled codec handles, by the codec's title."""


def encode_chunks(
    message: Message, version: int, head: bytearray | None = None, elements_max: int = ANY_COUNT
) -> list[Buffer]:
    """Returns the message in one or more buffers, in order; records of 16 KiB and more are the caller's own buffers.

    `head` holds bytes that go before the message, and becomes the first buffer. `elements_max` bounds the
    elements of all arrays together, except arrays of numbers, and with them the time that it takes. Raises
    FieldNotInVersion, TooManyElements, UnencodableMessage, UnknownVersion.
    """
    codec = message._encoders.get(version) or _compile_encoder(type(message), version)
    try:
        chunks: list[Buffer] = codec(message, bytearray() if head is None else head, elements_max)
        return chunks
    except (Fault, struct.error, AttributeError, TypeError, ValueError, OverflowError) as exception:
        error = _encoding_error(message, version, exception)
    try:
        raise error
    finally:
        del error  # or the error and this frame would keep each other alive


def encode_steps(message: Message, version: int, head: bytearray) -> Steps[list[Buffer]]:
    """Does what `encode_chunks` does, in steps, for a large message."""
    codec = message._stepped_encoders.get(version)
    if codec is None:
        codec = _compiled(EncoderSource, type(message), version, "encode", in_steps=True)
        message._stepped_encoders[version] = codec
    try:
        chunks: list[Buffer] = yield from codec(message, head, ANY_COUNT)
        return chunks
    except (Fault, struct.error, AttributeError, TypeError, ValueError, OverflowError) as exception:
        error = _encoding_error(message, version, exception)
    try:
        raise error
    finally:
        del error


def encode(message: Message, version: int) -> bytes:
    """Returns the whole message in one piece, without header. Raises like `encode_chunks`."""
    chunks = encode_chunks(message, version)
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)


def decode(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, elements_max: int = ANY_COUNT
) -> tuple[M, int]:
    """Reads a message that starts at `position`; returns (message, position after it).

    Records are slices of `buffer`, everything else is copied out of it. Bytes after the message are the
    caller's affair. `elements_max` bounds the elements of all arrays together, and with them time and memory.
    Raises MalformedMessage, TooManyElements, UnknownVersion.
    """
    codec = cls._decoders.get(version) or _compile_decoder(cls, version)
    try:
        message, end = codec(buffer, position, len(buffer), elements_max)
        return message, end
    except (Fault, IndexError, struct.error, UnicodeDecodeError) as exception:
        # Not raised from here: as its context, the exception would hold on to the frames it went through.
        error = _decoding_error(cls, exception, len(buffer))
    try:
        raise error
    finally:
        del error  # or the error and this frame, and with it the buffer, would keep each other alive


def decode_steps(
    cls: type[M], version: int, buffer: Buffer, position: int, elements_max: int
) -> Steps[tuple[M, int]]:
    """Does what `decode` does, in steps, for a large message."""
    codec = cls._stepped_decoders.get(version)
    if codec is None:
        codec = _compiled(DecoderSource, cls, version, "decode", in_steps=True)
        cls._stepped_decoders[version] = codec
    try:
        message, end = yield from codec(buffer, position, len(buffer), elements_max)
        return message, end
    except (Fault, IndexError, struct.error, UnicodeDecodeError) as exception:
        error = _decoding_error(cls, exception, len(buffer))
    try:
        raise error
    finally:
        del error


def source_of(cls: type[Message], version: int, direction: str) -> str:
    """Returns the Python source of a codec ("encode" or "decode"), for people."""
    writer = (EncoderSource if direction == "encode" else DecoderSource)(cls, version).write()
    return "\n".join(writer.lines) + "\n"


def _compile_encoder(cls: type[Message], version: int) -> Any:
    codec = cls._encoders[version] = _compiled(EncoderSource, cls, version, "encode")
    return codec


def _compile_decoder(cls: type[Message], version: int) -> Any:
    codec = cls._decoders[version] = _compiled(DecoderSource, cls, version, "decode")
    return codec


def _compiled(
    source: Any, cls: type[Message], version: int, direction: str, *, in_steps: bool = False
) -> Any:
    if version not in cls.VERSIONS:
        raise UnknownVersion(cls.__name__, version)
    writer: Writer = source(cls, version, in_steps=in_steps).write()
    way = f"{direction} in steps" if in_steps else direction
    title = f"<odradek {way} {cls.__name__} v{version}>"
    if title in _PLACES:  # records of different logs may have messages of one name
        title = f"<odradek {way} {cls.__module__}.{cls.__qualname__} v{version}>"
    _PLACES[title] = writer.places
    return writer.compile(title)


def _decoding_error(cls: type[Message], exception: Exception, end: int) -> MalformedMessage:
    frame, places = _raised_at(exception.__traceback__)
    if frame is None:
        return MalformedMessage(str(exception), path=cls.__name__)
    position = frame.f_locals["p"]
    place = next((p for p in places if position + p.offset + p.size > end), places[0])
    return MalformedMessage(
        _problem(exception), path=_full_path(cls, place, frame.f_locals), position=position + place.offset
    )


def _problem(exception: Exception) -> str:
    if isinstance(exception, Fault):
        return str(exception)
    if isinstance(exception, UnicodeDecodeError):
        return "a string is not valid UTF-8"
    return "the message ends here"


def _encoding_error(message: Message, version: int, exception: Exception) -> Exception:
    cls = type(message)
    frame, places = _raised_at(exception.__traceback__)
    if frame is None:
        return UnencodableMessage(str(exception), path=cls.__name__)
    place = next((p for p in places if _unpackable(p, frame)), places[0])
    path = _full_path(cls, place, frame.f_locals)
    if isinstance(exception, Fault):
        return FieldNotInVersion(path, version)
    return UnencodableMessage(str(exception), path=path)


def _unpackable(place: Place, frame: FrameType) -> bool:
    """Returns whether this part of a packed run does not fit its format, by packing it alone."""
    if place.check is None:
        return False
    layout, expression = place.check
    try:
        values = eval(f"[{expression}]", frame.f_globals, frame.f_locals)  # our own generated text
        for value in values:
            struct.pack(">" + layout, value)
    except Exception:  # noqa: BLE001 - whatever is wrong with the value, this is the one
        return True
    return False


def _raised_at(traceback: TracebackType | None) -> tuple[FrameType | None, tuple[Place, ...]]:
    """Returns the frame of the compiled codec in a traceback, and the places of the line it stopped at."""
    while traceback is not None:
        places = _PLACES.get(traceback.tb_frame.f_code.co_filename)
        if places is not None:
            return traceback.tb_frame, places[traceback.tb_lineno - 1]
        traceback = traceback.tb_next
    return None, ()


def _full_path(cls: type[Message], place: Place, variables: dict[str, Any]) -> str:
    def index(match: re.Match[str]) -> str:
        items, element = match.groups()
        if element is None:
            return str(variables[items])
        return str(next((i for i, value in enumerate(variables[items]) if value is variables[element]), "?"))

    return f"{cls.__name__}.{_INDEX.sub(index, place.path)}".rstrip(".")
