"""State of one key for processors of the user's: values, and maps and lists of which only what changes is written.

The values of a key are one entry of the store. A map is cut into parts by the hash of its keys, a list by the place, so that
an entry more or less costs as much as a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from copy import deepcopy
from typing import Any, Final, overload
from zlib import crc32

from odradek.streams.processors.ports import Fields, TaskState

PARTS: Final = 64
"""Of a map."""
PART_LENGTH: Final = 64
"""Of a list."""
_PART: Final = "\0part"
"""Beside the columns of the key: no column is called so."""


def own_value(value: Any, state: TaskState) -> Any:
    """A value of the state for code of the program's, which may change it in place and raise then."""
    return deepcopy(value) if state.can_undo else value


class KeyedMap(MutableMapping[Any, Any]):
    """A map of one key. Keys are plain values or tuples of such. To change a value that is a list or dict, set it again."""

    def __init__(self, state: TaskState, name: str, key: Fields) -> None:
        self._state = state
        self._name = f"map {name}"
        self._key = key

    def _part(self, number: int) -> dict[str, tuple[Any, Any]]:
        return self._state.get(self._name, {**self._key, _PART: number}) or {}

    def _put(self, number: int, part: dict[str, tuple[Any, Any]]) -> None:
        self._state.put(self._name, {**self._key, _PART: number}, part or None)
        used = self._used()
        if bool(part) != (number in used):
            kept = sorted({*used, number} if part else {*used} - {number})
            self._state.put(f"{self._name} parts", self._key, kept or None)

    def _used(self) -> list[int]:
        return self._state.get(f"{self._name} parts", self._key) or []

    @staticmethod
    def _number(entry: str) -> int:
        return crc32(entry.encode()) % PARTS

    def __getitem__(self, key: Any) -> Any:
        entry = repr(key)
        return own_value(self._part(self._number(entry))[entry][1], self._state)

    def __setitem__(self, key: Any, value: Any) -> None:
        entry = repr(key)
        number = self._number(entry)
        self._put(number, {**self._part(number), entry: (key, value)})

    def __delitem__(self, key: Any) -> None:
        entry = repr(key)
        number = self._number(entry)
        part = dict(self._part(number))
        del part[entry]
        self._put(number, part)

    def __iter__(self) -> Iterator[Any]:
        for number in self._used():
            for key, _ in list(self._part(number).values()):
                yield key

    def __len__(self) -> int:
        return sum(len(self._part(number)) for number in self._used())

    def clear(self) -> None:
        """Part by part: entry by entry, each would be found and taken out of its part."""
        used = self._used()
        for number in used:
            self._state.put(self._name, {**self._key, _PART: number}, None)
        if used:
            self._state.put(f"{self._name} parts", self._key, None)


class KeyedList(Sequence[Any]):
    """A list of one key that grows at its end."""

    def __init__(self, state: TaskState, name: str, key: Fields) -> None:
        self._state = state
        self._name = f"list {name}"
        self._key = key

    def _part(self, number: int) -> list[Any]:
        return self._state.get(self._name, {**self._key, _PART: number}) or []

    def append(self, value: Any) -> None:
        length = len(self)
        number = length // PART_LENGTH
        self._state.put(self._name, {**self._key, _PART: number}, [*self._part(number), value])
        self._state.put(f"{self._name} length", self._key, length + 1)

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def clear(self) -> None:
        for number in range(-(-len(self) // PART_LENGTH)):
            self._state.put(self._name, {**self._key, _PART: number}, None)
        self._state.put(f"{self._name} length", self._key, None)

    @overload
    def __getitem__(self, place: int) -> Any: ...

    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        length = len(self)
        if not -length <= place < length:
            raise IndexError(f"the list has {length} values, not one at {place}")
        place %= length
        return own_value(self._part(place // PART_LENGTH)[place % PART_LENGTH], self._state)

    def __len__(self) -> int:
        length: int = self._state.get(f"{self._name} length", self._key) or 0
        return length


class KeyedState(dict[str, Any]):
    """Values of one key, and by name its maps and lists."""

    def __init__(
        self, state: TaskState, key: Fields, values: dict[str, Any], collections: Iterable[str]
    ) -> None:
        super().__init__(values)
        self._state = state
        self._key = key
        self.collections = set(collections)
        """Maps and lists that were used: `map NAME`, `list NAME`."""

    def map(self, name: str) -> KeyedMap:
        """Made when it is first used. For many entries of which few change at a time."""
        self.collections.add(f"map {name}")
        return KeyedMap(self._state, name, self._key)

    def list(self, name: str) -> KeyedList:
        """Made when it is first used. For many values that are added one by one."""
        self.collections.add(f"list {name}")
        return KeyedList(self._state, name, self._key)

    def filled(self) -> tuple[str, ...]:
        """The maps and lists that hold something."""
        return tuple(sorted(name for name in self.collections if len(self._collection(name))))

    def clear(self) -> None:
        """Forget everything, maps and lists too."""
        for name in self.collections:
            self._collection(name).clear()
        super().clear()

    def undone(self) -> Callable[[], None]:
        """Takes back what changes of the values from now on. Maps and lists are the task state's."""
        values, collections = own_value(dict(self), self._state), set(self.collections)

        def undo() -> None:
            super(KeyedState, self).clear()
            self.update(values)
            self.collections = collections

        return undo

    def _collection(self, name: str) -> KeyedMap | KeyedList:
        kind, _, own = name.partition(" ")
        return (KeyedMap if kind == "map" else KeyedList)(self._state, own, self._key)
