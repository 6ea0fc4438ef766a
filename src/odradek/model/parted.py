"""An immutable mapping in parts, so that a change copies, stores and sends only the parts in which something changes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PARTS: Final = 16


class Parted(Mapping[K, V]):
    """A mapping whose entries are in `PARTS` parts. `text_of(key)` decides which part has a key: it must be the same in every
    process, since parts are stored. Maps that are equal may share parts, and are compared by those first."""

    __slots__ = ("_text_of", "parts")

    def __init__(self, text_of: Callable[[K], str], parts: tuple[Mapping[K, V], ...] = ({},) * PARTS) -> None:
        self._text_of = text_of
        self.parts: Final = parts

    def __getitem__(self, key: K) -> V:
        return self.parts[self._number_of(key)][key]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Parted):
            return bool(self.parts == other.parts)
        return super().__eq__(other)

    def __hash__(self) -> int:
        return len(self)

    def __repr__(self) -> str:
        return f"Parted({dict(self)!r})"

    def with_changes(self, changes: Mapping[K, V | None]) -> Parted[K, V]:
        """Returns the mapping with entries added, replaced, or without those whose value is None. Parts without a change stay
        the same objects."""
        changed: dict[int, dict[K, V]] = {}
        for key, value in changes.items():
            number = self._number_of(key)
            part = changed.get(number)
            if part is None:
                part = changed[number] = dict(self.parts[number])
            if value is None:
                part.pop(key, None)
            else:
                part[key] = value
        return Parted(
            self._text_of, tuple(changed.get(number, part) for number, part in enumerate(self.parts))
        )

    def with_part(self, number: int, part: Mapping[K, V]) -> Parted[K, V]:
        """Returns the mapping with one part replaced."""
        return Parted(self._text_of, (*self.parts[:number], part, *self.parts[number + 1 :]))

    def _number_of(self, key: Any) -> int:
        return zlib.crc32(self._text_of(key).encode("utf-8", "surrogatepass")) % PARTS
