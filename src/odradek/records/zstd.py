"""zstd, the one codec whose set-up costs more than most batches: 18 us for a context, 2 us for 2 KB in one
that is there.

So contexts are kept, one for each thread and level, where the `zstandard` library can be had. Without it
(Python 3.14 and later do without), and for what it cannot do, `cramjam` makes a context each time.
"""

from __future__ import annotations

import threading
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

from odradek.model.lazy import lazy
from odradek.records.faults import damaged, expands_too_far
from odradek.runtime.ports import Buffer

if TYPE_CHECKING:
    import cramjam
else:
    cramjam = lazy("cramjam")

_SIZE_FIRST: Final = 32 << 10
_SIZE_GUESS: Final = 4
_SIZE_GROWTH: Final = 4


class _Compressor(Protocol):
    def compress(self, data: Buffer, /) -> bytes: ...


class _Decompressor(Protocol):
    def decompress(self, data: Buffer, *, allow_extra_data: bool) -> bytes: ...


class _Contexts(threading.local):
    """A context may be used by one thread at a time."""

    def __init__(self) -> None:
        self.compressors: dict[int, _Compressor] = {}
        self.decompressor: _Decompressor | None = None


_contexts: Final = _Contexts()


@cache
def zstd_library() -> ModuleType | None:
    try:
        import zstandard  # late-import: without it cramjam does the work
    except ImportError:
        return None
    return zstandard


def compress(data: Buffer, level: int) -> bytes:
    """Returns one frame that contains its content size."""
    library = zstd_library()
    if library is None:
        return bytes(cramjam.zstd.compress(data, level))
    compressor = _contexts.compressors.get(level)
    if compressor is None:
        compressor = _contexts.compressors[level] = library.ZstdCompressor(level)
    return compressor.compress(data)


def decompress(data: Buffer, allowed_bytes: int) -> Buffer:
    """Returns the content of one frame or several; INVALID_RECORD when it is damaged or larger than allowed."""
    declared = declared_bytes(data)
    if declared is not None and declared > allowed_bytes:
        raise expands_too_far("zstd", len(data), allowed_bytes)
    library = zstd_library()
    if declared is not None and library is not None:
        if _contexts.decompressor is None:
            _contexts.decompressor = library.ZstdDecompressor()
        try:
            content: bytes = _contexts.decompressor.decompress(data, allow_extra_data=False)
        except library.ZstdError:
            pass  # damaged, or several frames: the other way can tell
        else:
            return content
    return _decompress_growing(data, declared or 0, allowed_bytes)


def _decompress_growing(data: Buffer, size: int, allowed_bytes: int) -> Buffer:
    """Decompresses into `size` bytes, and where they are too few, into more and more, up to the allowed number."""
    size = size or min(allowed_bytes, max(_SIZE_FIRST, _SIZE_GUESS * len(data)))
    while True:
        content = bytearray(size)
        try:
            written: int = cramjam.zstd.decompress_into(data, content)
        except cramjam.DecompressionError as error:
            if size >= allowed_bytes:
                raise damaged("zstd", f"{error} (at most {allowed_bytes} bytes are allowed)") from None
            size = min(allowed_bytes, max(size * _SIZE_GROWTH, _SIZE_FIRST))
            continue
        del content[written:]
        return content


def declared_bytes(data: Buffer) -> int | None:
    """Returns the content size that the first frame's header tells (RFC 8878, section 3.1.1.1), None where it does
    not.
    """
    if len(data) < 5:
        return None
    descriptor = data[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    if width == 0:
        return None
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    field = bytes(data[start : start + width])
    return int.from_bytes(field, "little") + (256 if width == 2 else 0)
