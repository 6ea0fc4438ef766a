"""Text, numbers and bytes: what Spark SQL does in another way, or not at all."""

from __future__ import annotations

import struct
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_UP, Context, Decimal
from typing import Final

from odradek.sql.functions.python.java_time import zone_of

_CONTEXT: Final = Context(prec=400)


def rounded(number: str, scale: int, way: str) -> str:
    """Rounds a number that is written as text. `way`: up (to the nearest, ties to the positive side) or down (towards zero).
    The number stays what it is if it is infinite or no number."""
    value = Decimal(number)
    if not value.is_finite():
        return number
    mode = ROUND_DOWN if way == "down" else ROUND_HALF_UP if value > 0 else ROUND_HALF_DOWN
    return f"{value.quantize(Decimal(1).scaleb(-scale), rounding=mode, context=_CONTEXT):f}"


def position_of(text: str | None, part: str | None, position: int | None, occurrence: int | None) -> int:
    """Returns INSTR: a position from 1 on; 0 when there is none. A negative start position searches from the end."""
    if text is None or part is None or position is None or occurrence is None:
        return 0
    if not 0 < abs(position) <= len(text) or occurrence < 1:
        return 0
    step = 1 if position > 0 else -1
    start = position - 1 if position > 0 else len(text) + position - len(part) + 1
    indexes = range(start, len(text)) if step > 0 else range(start, -1, -1)
    for index in indexes:
        if text.startswith(part, index):
            occurrence -= 1
            if occurrence == 0:
                return index + 1
    return 0


def split_bytes(data: bytes, delimiter: bytes) -> list[bytes]:
    """Splits at each delimiter; byte by byte when it is empty."""
    if not data:
        return [data]
    return data.split(delimiter) if delimiter else [data[index : index + 1] for index in range(len(data))]


def double_from_bytes(data: bytes) -> float:
    """Reads eight bytes, the most significant one first."""
    (number,) = struct.unpack(">d", data)
    return float(number)


def existing_zone(name: str) -> str:
    """Returns a zone in a form that Spark knows, too. ValueError for one that does not exist."""
    zone_of(name)
    return name
