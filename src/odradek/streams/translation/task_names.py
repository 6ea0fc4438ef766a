"""Repartition: the names of the tasks among which Spark divides keys.

Spark divides rows among its partitions by the hash of the grouping value. The numbers 0 and 1 fall into the same of two
partitions, so that one core would have all the work. Each number of `even_names` falls into another partition.
"""

from __future__ import annotations

from functools import cache
from itertools import count as counted
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 42


@cache
def even_names(tasks: int) -> tuple[int, ...]:
    """Returns a number for each task whose hash falls into the partition of the task's own number."""
    names: dict[int, int] = {}
    for name in counted():
        names.setdefault(_signed_hash(name) % tasks, name)
        if len(names) == tasks:
            return tuple(names[number] for number in range(tasks))
    raise AssertionError


def _signed_hash(number: int) -> int:
    """Returns Spark's hash of an INT: MurmurHash3 (x86, 32 bits) of its four bytes, with the seed 42."""
    mixed = number * 0xCC9E2D51 & _MASK
    mixed = _rotated(mixed, 15) * 0x1B873593 & _MASK
    value = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK
