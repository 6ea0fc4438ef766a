"""Handles large payloads of ClusterSync in pieces, so that an event loop can serve others in between.

A thread would not help: Python's JSON coder keeps the interpreter's lock for the whole of what it is given.
So an update is written and read topic by topic, and large topics in portions of their partitions. Each step
yields its number of partitions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Generator, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, TypeVar

T = TypeVar("T")
Steps = Generator[int, None, T]
"""Work in steps: it yields how many partitions the last step handled, and returns the result."""
TURN: Final = 250
"""How many partitions are handled before other tasks get the event loop: one or two milliseconds."""
_WHITESPACE: Final = " \t\n\r"
_decode: Final = json.JSONDecoder().raw_decode


def at_once(steps: Steps[T]) -> T:
    """Returns the result, without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


async def in_turns(steps: Steps[T]) -> T:
    """Returns the result; others are served after every `TURN` partitions."""
    done = 0
    while True:
        try:
            done += next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        if done >= TURN:
            done = 0
            await asyncio.sleep(0)


def members(text: str, position: int = 0, *, apart: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yields the members of the JSON object that begins at `position`, one after another: (key, value).

    The values of the members in `apart`, objects too, come as their own members: (key, (inner key, value)) for each. ValueError
    where the text is no such object.
    """
    position = yield from _members(text, position, apart)
    if text[position:].strip(_WHITESPACE):
        raise json.JSONDecodeError("Extra data", text, position)


def _members(text: str, position: int, apart: Collection[str]) -> Generator[tuple[str, object], None, int]:
    position = _expect(text, _skip(text, position), "{")
    position = _skip(text, position)
    if text[position : position + 1] == "}":
        return position + 1
    while True:
        key, position = scanstring(text, _expect(text, position, '"'))
        position = _skip(text, _expect(text, _skip(text, position), ":"))
        if key in apart:
            inner = _members(text, position, ())
            while True:
                try:
                    member = next(inner)
                except StopIteration as end:
                    position = end.value
                    break
                yield key, member
        else:
            value, position = _decode(text, position)
            yield key, value
        position = _skip(text, position)
        if text[position : position + 1] == "}":
            return position + 1
        position = _skip(text, _expect(text, position, ","))


def _skip(text: str, position: int) -> int:
    while text[position : position + 1] in _WHITESPACE and position < len(text):
        position += 1
    return position


def _expect(text: str, position: int, character: str) -> int:
    if text[position : position + 1] != character:
        raise json.JSONDecodeError(f"Expecting {character!r}", text, position)
    return position + 1
