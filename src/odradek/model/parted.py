"""An immutable mapping in parts, so that a change copies, stores and sends only the parts in which something changes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, ItemsView, Iterator, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

PARTS: Final = 64


class Parted(Mapping[K, V]):
    """A mapping whose entries are in `PARTS` parts. `text_of(key)` decides which part has a key: it must be the same in every
    process, since parts are stored. Maps that are equal may share parts, and are compared by those first."""

    __slots__ = ("_text_of", "parts")

    def __init__(self, text_of: Callable[[K], str], parts: tuple[Mapping[K, V], ...] = ({},) * PARTS) -> None:
        self._text_of = text_of
        self.parts: Final = parts

    def __getitem__(self, key: K) -> V:
        return self.parts[self.number_of(key)][key]

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

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
        edit = PartedEdit(self)
        for key, value in changes.items():
            edit.change(key, value)
        return edit.mapping()

    def with_parts(self, changed: Mapping[int, Mapping[K, V]]) -> Parted[K, V]:
        """Returns the mapping with some parts replaced."""
        parts = list(self.parts)
        for number, part in changed.items():
            parts[number] = part
        return Parted(self._text_of, tuple(parts))

    def number_of(self, key: K) -> int:
        """Returns the number of the part that has a key, if the mapping has it."""
        return zlib.crc32(self._text_of(key).encode("utf-8", "surrogatepass")) % PARTS


class _Items(ItemsView[K, V]):
    """The entries, part by part: the iteration does not compute any key's part."""

    _mapping: Parted[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(part.items() for part in self._mapping.parts)


class PartedEdit(Generic[K, V]):
    """Changes that are made one by one, for callers that take turns on an event loop meanwhile. Each part is copied at most
    once."""

    def __init__(self, before: Parted[K, V]) -> None:
        self._before = before
        self._changed: dict[int, dict[K, V]] = {}

    def get(self, key: K) -> V | None:
        """Returns the value that a key has after the changes so far."""
        number = self._before.number_of(key)
        part = self._changed.get(number)
        return (self._before.parts[number] if part is None else part).get(key)

    def change(self, key: K, value: V | None) -> None:
        """Adds or replaces an entry, or removes it: None."""
        number = self._before.number_of(key)
        part = self._changed.get(number)
        if part is None:
            part = self._changed[number] = dict(self._before.parts[number])
        if value is None:
            part.pop(key, None)
        else:
            part[key] = value

    def mapping(self) -> Parted[K, V]:
        """Returns the mapping with the changes. No change comes afterwards."""
        return self._before.with_parts(self._changed)
