"""JSON values as bytes that sort as the values do, and back.

Null, false, true, numbers by size, strings by code point, arrays item by item (a shorter one before those that it begins),
objects as arrays of their members in the order of names. The bytes: a tag, then

- a number: eight bytes of its double, made sortable, then its text and a zero byte. The text tells apart what is one double;
- a string: its UTF-8, zero bytes as `00 FF`, then `00`. FoundationDB's tuples do the same;
- an array or object: its items, then `00`.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final

_END: Final = 0
_NULL, _FALSE, _TRUE, _NUMBER, _STRING, _ARRAY, _OBJECT = range(2, 9)
_DOUBLE: Final = struct.Struct(">Q")
_FLOAT: Final = struct.Struct(">d")
_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1
DEPTH_MAX: Final = 64
_LARGEST_INTEGER: Final = 10**308


def encode(value: object) -> bytes:
    """Encodes a value. Raises ValueError for what JSON has no value for, and for arrays nested deeper than DEPTH_MAX."""
    parts: list[bytes] = []
    _encode(value, parts, DEPTH_MAX)
    return b"".join(parts)


def encode_prefix(value: object) -> bytes:
    """Returns the prefix of the bytes of every string that begins with `value`, or of every array with these first items."""
    if not isinstance(value, str | list | tuple):
        raise ValueError(f"only a string or an array can be a prefix, not {value!r}")
    return encode(value)[:-1]


def decode(data: bytes) -> Any:
    """Returns the value. ValueError for other bytes."""
    value, position = _decode(data, 0)
    if position != len(data):
        raise ValueError("there is more after the value")
    return value


def sortable_double(bits: int) -> int:
    """Returns the bits of a double, as a number that is larger when the double is: -inf first, NaN last (with the sign bit:
    first)."""
    return bits ^ (_ALL if bits & _SIGN else _SIGN)


def _encode(value: object, parts: list[bytes], depth_left: int) -> None:
    if depth_left <= 0:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX}")
    if isinstance(value, str):
        parts += (bytes((_STRING,)), escaped(value.encode()))
    elif value is None or isinstance(value, bool):
        parts.append(bytes(((_NULL if value is None else _TRUE if value else _FALSE),)))
    elif isinstance(value, int | float):
        parts.append(_encoded_number(value))
    elif isinstance(value, list | tuple):
        parts.append(bytes((_ARRAY,)))
        for element in value:
            _encode(element, parts, depth_left - 1)
        parts.append(b"\0")
    elif isinstance(value, dict):
        parts.append(bytes((_OBJECT,)))
        for name in sorted(value):
            _encode(name, parts, depth_left - 1)
            _encode(value[name], parts, depth_left - 1)
        parts.append(b"\0")
    else:
        raise ValueError(f"JSON has no value for {value!r}")


def _encoded_number(value: float) -> bytes:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no value for {value!r}")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)  # 1.0 and 1 are one number
    double = float(value) if abs(value) < _LARGEST_INTEGER else math.copysign(math.inf, value)
    text = json.dumps(value).encode()
    bits: int = _DOUBLE.unpack(_FLOAT.pack(double))[0]
    return b"%c%b%b\0" % (_NUMBER, _DOUBLE.pack(sortable_double(bits)), text)


def _decode(data: bytes, position: int) -> tuple[object, int]:
    if position >= len(data):
        raise ValueError("the bytes end within a value")
    tag = data[position]
    position += 1
    if tag == _STRING:
        raw, position = unescaped(data, position)
        return raw.decode(), position
    if tag in (_NULL, _FALSE, _TRUE):
        return {_NULL: None, _FALSE: False, _TRUE: True}[tag], position
    if tag == _NUMBER:
        end = data.index(b"\0", position + 8)
        return json.loads(data[position + 8 : end]), end + 1
    if tag in (_ARRAY, _OBJECT):
        items, position = _decode_items(data, position)
        if tag == _ARRAY:
            return items, position
        return dict(zip(items[::2], items[1::2], strict=True)), position
    raise ValueError(f"there is no tag {tag}")


def _decode_items(data: bytes, position: int) -> tuple[list[object], int]:
    items = []
    while data[position : position + 1] != b"\0":
        element, position = _decode(data, position)
        items.append(element)
    return items, position + 1


def escaped(raw: bytes) -> bytes:
    """Returns bytes with an end mark: what follows cannot be taken for a part of them, and the order stays."""
    return raw.replace(b"\0", b"\0\xff") + b"\0"


def unescaped(data: bytes, position: int) -> tuple[bytes, int]:
    """Returns the bytes that were `escaped`, and the position after them. Raises ValueError without an end mark."""
    start = position
    while True:
        end = data.index(b"\0", position)
        if data[end + 1 : end + 2] != b"\xff":
            return data[start:end].replace(b"\0\xff", b"\0"), end + 1
        position = end + 2
