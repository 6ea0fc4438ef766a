"""Spark's `hash` of keys, for columns: which task has a key is decided by it, in the source and in Spark alike.

It is Murmur3 (x86, 32 bits) with the seed 42, except for the last bytes of a text, each of which counts as a word. A null
leaves the hash as it is; a struct goes field by field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyarrow import compute as pc

    Words: TypeAlias = npt.NDArray[np.uint32]
else:
    np = lazy("numpy")
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

_SEED: Final = 42
_MASK: Final = 0xFFFF_FFFF
_LONG_BYTES: Final = 256
"""From this length on a text is hashed alone: steps over all texts together cost the same for one text as for many."""


def is_hashed(kind: pa.DataType) -> bool:
    """Tells whether keys with a field of this type have their hash from here."""
    return any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_binary,
            pa.types.is_int32,
            pa.types.is_int64,
            pa.types.is_boolean,
        )
    )


def hashes(keys: pa.StructArray) -> npt.NDArray[np.int32]:
    """Returns the hash of each key, of fields for which `is_hashed` holds. A null key has the seed."""
    state = np.full(len(keys), _SEED, np.uint32)
    for column in keys.flatten():
        hashed = _of_column(column, state)
        if column.null_count:
            is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
            hashed = np.where(is_null, state, hashed)
        state = hashed
    return state.view(np.int32)


def _of_column(column: pa.Array, state: Words) -> Words:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_texts(column, state)
    filled = pc.fill_null(column, pa.scalar(0).cast(kind)) if column.null_count else column
    if pa.types.is_boolean(kind):
        filled = filled.cast(pa.int32())
    numbers = filled.to_numpy(zero_copy_only=False)
    if pa.types.is_int64(kind):
        words = np.ascontiguousarray(numbers, np.int64).view(np.uint32).reshape(-1, 2)
        return _final(_mixed(_mixed(state, words[:, 0]), words[:, 1]), 8)
    return _final(_mixed(state, np.ascontiguousarray(numbers, np.int32).view(np.uint32)), 4)


def _of_texts(column: pa.Array, state: Words) -> Words:
    if len(column) == 0:
        return state.copy()
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.zeros(0, np.uint8) if data_buffer is None else np.frombuffer(data_buffer, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    hashed = state.copy()
    short = np.flatnonzero(lengths < _LONG_BYTES)
    hashed[short] = _of_short_texts(data, starts[short], lengths[short], state[short])
    for row in np.flatnonzero(lengths >= _LONG_BYTES).tolist():
        text = data[starts[row] : starts[row] + lengths[row]]
        hashed[row] = _of_long_text(text.tobytes(), int(state[row]))
    return hashed


def _of_short_texts(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], state: Words
) -> Words:
    """Takes at each step one word of every text that still has one, then the last bytes of each, one by one."""
    hashed = state.copy()
    padded = np.concatenate((data, np.zeros(4, np.uint8)))
    words = lengths // 4
    rows = np.flatnonzero(words > 0)
    step = 0
    while len(rows):
        at = starts[rows] + 4 * step
        word = padded[at].astype(np.uint32)
        for index in range(1, 4):
            word |= padded[at + index].astype(np.uint32) << np.uint32(8 * index)
        hashed[rows] = _mixed(hashed[rows], word)
        step += 1
        rows = rows[words[rows] > step]
    for index in range(3):
        rows = np.flatnonzero(lengths % 4 > index)
        last = padded[starts[rows] + 4 * words[rows] + index].view(np.int8).astype(np.int32).view(np.uint32)
        hashed[rows] = _mixed(hashed[rows], last)
    return _final(hashed, lengths.astype(np.uint32))


def _mixed(state: Words, word: Words) -> Words:
    word = word * np.uint32(0xCC9E2D51)
    word = (word << np.uint32(15)) | (word >> np.uint32(17))
    state = state ^ (word * np.uint32(0x1B873593))
    state = (state << np.uint32(13)) | (state >> np.uint32(19))
    mixed: Words = state * np.uint32(5) + np.uint32(0xE6546B64)
    return mixed


def _final(state: Words, length: int | Words) -> Words:
    state = state ^ np.asarray(length, np.uint32)
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    final: Words = state ^ (state >> np.uint32(16))
    return final


def _of_long_text(text: bytes, state: int) -> int:
    aligned = len(text) & ~3
    words = np.frombuffer(text, "<u4", aligned // 4) * np.uint32(0xCC9E2D51)
    words = ((words << np.uint32(15)) | (words >> np.uint32(17))) * np.uint32(0x1B873593)
    for word in words.tolist():
        state ^= word
        state = ((((state << 13) | (state >> 19)) & _MASK) * 5 + 0xE6546B64) & _MASK
    rest = np.frombuffer(text[aligned:], np.int8).astype(np.int32).view(np.uint32)
    hashed = np.array([state], np.uint32)
    for index in range(len(rest)):
        hashed = _mixed(hashed, rest[index : index + 1])
    return int(_final(hashed, len(text))[0])
