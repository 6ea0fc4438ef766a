"""Bytes of a good request turned into those of a bad one: one fault at a time, drawn from a seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Final

_HEADER_BYTES: Final = 10
"""API, version, correlation id, length of the client id."""
_LENGTHS: Final = tuple(
    bytes.fromhex(text)
    for text in (
        "ffffffff",
        "fffffffe",
        "7fffffff",
        "80000000",
        "ffff",
        "7fff",
        "8000",
        "0000",
        "00000000",
        "00010000",
    )
)
_VARINTS: Final = tuple(
    bytes.fromhex(text)
    for text in (
        "ffffffffffffffffffff",
        "ffffffff0f",
        "ffffffff7f",
        "808080808000",
        "8080808080808080808001",
        "80",
        "00",
    )
)
_TAGS: Final = tuple(
    bytes.fromhex(text)
    for text in ("0100", "01000100", "02000100", "017fffffffff0f", "ffffffff0f", "0100ffffffff07")
)

Mutation = Callable[[random.Random, bytearray], None]


def _overwrite(chance: random.Random, frame: bytearray, piece: bytes) -> None:
    place = chance.randrange(_HEADER_BYTES, len(frame))
    frame[place : place + len(piece)] = piece


def length(chance: random.Random, frame: bytearray) -> None:
    """A length or count that is negative, null, huge or nothing."""
    _overwrite(chance, frame, chance.choice(_LENGTHS))


def varint(chance: random.Random, frame: bytearray) -> None:
    """One that overflows, is overlong, or is null."""
    _overwrite(chance, frame, chance.choice(_VARINTS))


def tags(chance: random.Random, frame: bytearray) -> None:
    """A section of tagged fields where none, or another, was."""
    place = chance.randrange(_HEADER_BYTES, len(frame) + 1)
    frame[place : place + chance.randrange(2)] = chance.choice(_TAGS)


def cut(chance: random.Random, frame: bytearray) -> None:
    """The message ends too early; its size says so."""
    del frame[chance.randrange(1, len(frame)) :]


def doubled(chance: random.Random, frame: bytearray) -> None:
    """A part stands there twice."""
    start = chance.randrange(_HEADER_BYTES, len(frame))
    end = chance.randrange(start, len(frame)) + 1
    frame[start:start] = frame[start:end]


def shortened(chance: random.Random, frame: bytearray) -> None:
    """A part in the middle is missing."""
    start = chance.randrange(_HEADER_BYTES, len(frame))
    del frame[start : start + chance.randrange(1, 9)]


def flipped(chance: random.Random, frame: bytearray) -> None:
    """A few bits are others."""
    for _ in range(chance.randrange(1, 5)):
        frame[chance.randrange(_HEADER_BYTES, len(frame))] ^= 1 << chance.randrange(8)


def noise(chance: random.Random, frame: bytearray) -> None:
    """The body is random bytes."""
    frame[_HEADER_BYTES:] = chance.randbytes(chance.randrange(120))


def longer(chance: random.Random, frame: bytearray) -> None:
    """Bytes stand behind the message."""
    frame += chance.randbytes(chance.randrange(1, 40))


def version(chance: random.Random, frame: bytearray) -> None:
    """A version that the body is not of, or that no one has."""
    struct.pack_into(">h", frame, 2, chance.choice((-1, 0, 1, 2, 3, 4, 5, 9, 12, 13, 99, 32767, -32768)))


def api(chance: random.Random, frame: bytearray) -> None:
    """An API that the body is not of, or that no one has."""
    struct.pack_into(">h", frame, 0, chance.choice((-1, *range(95), 1000, 32767)))


MUTATIONS: Final[tuple[Mutation, ...]] = (
    cut,
    noise,
    longer,
    tags,
    length,
    length,
    varint,
    varint,
    doubled,
    shortened,
    flipped,
    flipped,
    version,
    api,
)
