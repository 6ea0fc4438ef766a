"""The five codecs: compress a batch's records, and decompress them without trusting what they claim.

Decompression writes into memory whose size is bounded *before* anything is produced, so a bomb costs at most
the limit, never what it would expand to. Libraries are imported on first use: a broker that only passes
batches on needs none of them for what it does not have to open.

What each peer can read decides the dialect: snappy goes out in the framing of the xerial library, as the Java
client writes it, and comes in either so or raw, as librdkafka and others write it; lz4 goes out as a frame of
independent blocks (the Java client refuses linked ones); zstd carries its content size.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.records import zstd
from odradek.records.faults import damaged, expands_too_far, invalid
from odradek.runtime.ports import Buffer

if TYPE_CHECKING:
    import cramjam
    from lz4 import frame as lz4_frame
else:
    cramjam = lazy("cramjam")
    lz4_frame = lazy("lz4.frame")


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """Returns the codec of one of Kafka's `compression.type` words: none, uncompressed, gzip, snappy, lz4, zstd. Raises
        ValueError for others.
        """
        word = "none" if name == "uncompressed" else name
        for codec in cls:
            if codec.name.lower() == word:
                return codec
        raise ValueError(f"unknown codec {name!r}: one of none, gzip, snappy, lz4, zstd")


_CODECS: Final = tuple(Codec)
_CODEC_MASK: Final = 0x07

DEFAULT_LEVELS: Final = {Codec.GZIP: 6, Codec.LZ4: 0, Codec.ZSTD: 3}


def codec_of(attributes: int) -> Codec:
    """Returns the codec that batch attributes name; INVALID_RECORD for a number that no codec has."""
    number = attributes & _CODEC_MASK
    if number >= len(_CODECS):
        raise invalid(f"unknown compression codec {number}")
    return _CODECS[number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a batch may expand: never beyond `decompressed_bytes_max`, and beyond `ratio_free_bytes` only
    as far as `ratio_max` times its compressed size. gzip reaches 1032 at most, lz4 255, snappy 21, zstd far
    more.
    """

    decompressed_bytes_max: int = 128 << 20
    ratio_max: int = 1000
    ratio_free_bytes: int = 16 << 20

    def allowed_bytes(self, compressed_bytes: int) -> int:
        """Returns the most bytes that this many compressed bytes may expand to."""
        return min(self.decompressed_bytes_max, max(self.ratio_free_bytes, self.ratio_max * compressed_bytes))


DEFAULT_LIMITS: Final = Limits()
"""Limits for batches from a producer."""
READ_LIMITS: Final = Limits(decompressed_bytes_max=512 << 20, ratio_free_bytes=512 << 20)
"""Limits for batches from a log: what a broker accepted (with its own limits, or with none) must be readable."""

_SNAPPY_BLOCK_BYTES: Final = 32 << 10
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_LENGTH: Final = struct.Struct(">i")
_SNAPPY_EXPANSION_MAX: Final = 64
"""The largest ratio of snappy, whose densest element is a copy of 64 bytes in 2 or 3: a larger claim is false."""
_GZIP_WINDOW: Final = 31
_GZIP_PIECE_BYTES: Final = 1 << 20
_GZIP_INPUT_BYTES_MIN: Final = 1 << 10
_GZIP_INPUT_BYTES_MAX: Final = 64 << 10
"""How many bytes zlib gets at once: at the end of a member it copies the unused ones."""
_MEMBER_WEIGHT_BYTES: Final = 1 << 10
_BLOCK_WEIGHT_BYTES: Final = 512
"""The bytes that each gzip member and snappy block after the first counts as: an empty one costs time, too."""
_LZ4_FLAGS: Final = 4
_LZ4_SIZE_FLAG: Final = 0x08
_LZ4_SIZE: Final = 6
_LZ4_SIZE_END: Final = 14
_LZ4_GUESS: Final = 6
_LZ4_PIECE_BYTES_MIN: Final = 64 << 10
_LZ4_PIECE_BYTES_MAX: Final = 16 << 20


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Returns `data`, compressed so that every Kafka client can read it. `level` is the codec's own scale; snappy has none."""
    if level is None:
        level = DEFAULT_LEVELS.get(codec, 0)
    if codec is Codec.NONE:
        return bytes(data)
    if codec is Codec.GZIP:
        return zlib.compress(data, level, wbits=_GZIP_WINDOW)
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        framed: bytes = lz4_frame.compress(data, compression_level=level, block_linked=False)
        return framed
    return zstd.compress(data, level)


def decompress(codec: Codec, data: Buffer, limits: Limits = DEFAULT_LIMITS) -> Buffer:
    """Returns the whole content of `data`; INVALID_RECORD when it is damaged, cut short or larger than `limits`
    allow.
    """
    if codec is Codec.NONE:
        return data
    allowed = limits.allowed_bytes(len(data))
    if codec is Codec.GZIP:
        return _decompress_gzip(data, allowed)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(memoryview(data), allowed)
    if codec is Codec.LZ4:
        return _decompress_lz4(data, allowed)
    return zstd.decompress(data, allowed)


def _decompress_gzip(data: Buffer, allowed: int) -> Buffer:
    """Decompresses one or more gzip members, as Java's reader accepts them."""
    content = bytearray()
    view = memoryview(data)
    position = member_count = 0
    try:
        while position < len(view):
            if member_count * _MEMBER_WEIGHT_BYTES > allowed:
                raise expands_too_far("gzip", len(data), allowed)
            member_count += 1
            position = _read_gzip_member(view, position, content, allowed)
    except zlib.error as error:
        raise damaged("gzip", error) from None
    return content


def _read_gzip_member(view: memoryview, position: int, content: bytearray, allowed: int) -> int:
    """Adds the content of the member at `position`; returns the position after it."""
    member = zlib.decompressobj(_GZIP_WINDOW)
    input_bytes = _GZIP_INPUT_BYTES_MIN
    while not member.eof:
        given = view[position : position + input_bytes]
        # In pieces: one large piece would be in memory twice while it is added to the rest.
        piece = member.decompress(given, _GZIP_PIECE_BYTES)
        content += piece
        if len(content) > allowed:
            raise expands_too_far("gzip", len(view), allowed)
        used = len(given) - len(member.unconsumed_tail) - len(member.unused_data)
        if not piece and not used and not member.eof:
            raise damaged("gzip", "it is cut short")
        position += used
        input_bytes = min(2 * input_bytes, _GZIP_INPUT_BYTES_MAX)
    return position


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, allowed: int) -> Buffer:
    framed = bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
    blocks = _xerial_blocks(data, allowed) if framed else [data]
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > allowed:
        raise expands_too_far("snappy", len(data), allowed)

    content = bytearray(sum(sizes))
    target = memoryview(content)
    position = 0
    try:
        for block, size in zip(blocks, sizes, strict=True):
            if size:
                cramjam.snappy.decompress_raw_into(block, target[position : position + size])
            elif len(block) > 1:
                raise damaged("snappy", "there are bytes after an empty block")
            position += size
    except cramjam.DecompressionError as error:
        raise damaged("snappy", error) from None
    return content


def _xerial_blocks(data: memoryview, allowed: int) -> list[memoryview]:
    blocks: list[memoryview] = []
    position, end = len(_XERIAL_HEADER), len(data)
    if position > end:
        raise damaged("snappy", "its framing is cut short")
    while position < end:
        if len(blocks) * _BLOCK_WEIGHT_BYTES > allowed:
            raise expands_too_far("snappy", end, allowed)
        if end - position < _XERIAL_LENGTH.size:
            raise damaged("snappy", "a block's length is cut short")
        size: int = _XERIAL_LENGTH.unpack_from(data, position)[0]
        position += _XERIAL_LENGTH.size
        if not 0 < size <= end - position:
            raise damaged("snappy", f"a block of {size} bytes in the {end - position} that are left")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _snappy_size(block: memoryview) -> int:
    """Returns the expanded size that a raw block declares: an unsigned varint of at most 32 bits."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size > 0xFFFF_FFFF or size > _SNAPPY_EXPANSION_MAX * len(block):
                break
            return size
    raise damaged("snappy", "a block's size is impossible")


def _decompress_lz4(data: Buffer, allowed: int) -> Buffer:
    """Decompresses in pieces: the library allocates all the memory it may fill, which for `allowed` costs more than to fill
    it.
    """
    first = _lz4_declared_bytes(data) or _LZ4_GUESS * len(data)
    reader = lz4_frame.LZ4FrameDecompressor(return_bytearray=True)
    try:
        content: bytearray = reader.decompress(data, max_length=min(allowed, first) + 1)
        while not reader.eof and not reader.needs_input and len(content) <= allowed:
            piece = min(max(len(content), _LZ4_PIECE_BYTES_MIN), _LZ4_PIECE_BYTES_MAX)
            more = min(allowed + 1 - len(content), piece)
            content += reader.decompress(b"", max_length=more)
    except RuntimeError as error:
        raise damaged("lz4", error) from None
    if len(content) > allowed:
        raise expands_too_far("lz4", len(data), allowed)
    if not reader.eof or reader.unused_data:
        raise damaged("lz4", "it is truncated or has bytes after its end")
    return content


def _lz4_declared_bytes(data: Buffer) -> int:
    """Returns the content size in the frame's header, 0 where it has none. It may be false: good for a first guess."""
    has_size = len(data) >= _LZ4_SIZE_END and data[_LZ4_FLAGS] & _LZ4_SIZE_FLAG
    return int.from_bytes(data[_LZ4_SIZE:_LZ4_SIZE_END], "little") if has_size else 0
