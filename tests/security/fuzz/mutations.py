"""The corpus of seeds, and random mutations of it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

SEEDS = Path(__file__).parent / "seeds.json"
_PIECES = (
    b"",
    b"\0",
    b"\n",
    b",",
    b"=",
    b"==",
    b".",
    b"/",
    b'"',
    b"\\",
    b"\xff",
    b"\xc3",
    b"n,,",
    b"9" * 40,
    b"A" * 200,
    b"*",
)


def seeds_of() -> dict[str, list[bytes]]:
    """By target."""
    written: dict[str, list[str]] = json.loads(SEEDS.read_text(encoding="utf-8"))
    return {name: [text.encode("latin-1") for text in texts] for name, texts in written.items()}


def mutated(random: Random, corpus: list[bytes]) -> bytes:
    """One of the corpus, with a few changes: bytes flipped, pieces put in or taken out, ends of others."""
    data = bytearray(random.choice(corpus))
    for _ in range(random.randint(1, 4)):
        position = random.randint(0, len(data))
        kind = random.randrange(4)
        if kind == 0 and position < len(data):
            data[position] = random.randrange(256)
        elif kind == 1:
            data[position:position] = random.choice(_PIECES)
        elif kind == 2:
            del data[position : position + random.randint(1, 8)]
        else:
            other = random.choice(corpus)
            data[position:] = other[random.randint(0, len(other)) :]
    return bytes(data)
