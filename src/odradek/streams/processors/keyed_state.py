"""State of one key for processors of the user's: values, and maps, lists and versions of which only what changes is written.

The values of a key are one entry of the store. A map is cut into parts by the hash of its keys, a list by the place, so that
an entry more or less costs as much as a part.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple, overload
from zlib import crc32

from odradek.spark.rows.result_types import timestamp_type
from odradek.streams.plan.windows import Length, milliseconds
from odradek.streams.processors.ports import Fields, TaskState

PARTS: Final = 64
"""The number of parts in which a map is stored."""
PART_LENGTH: Final = 64
"""The length of the parts in which a list is stored."""
_PART: Final = "\0part"
"""The name of a part's number, next to the columns of the key: no column has this name."""
_TASK: Final[Fields] = {"of": "task"}


def own_value(value: object, state: TaskState) -> Any:
    """Returns a state value for the program's code, copied if the state can undo: the code may change it and then raise."""
    return deepcopy(value) if state.can_undo else value


class KeyedMap(MutableMapping[Any, Any]):
    """A map of one key. Keys are plain values or tuples of such. To change a value that is a list or dict, set it again."""

    def __init__(self, state: TaskState, name: str, key: Fields) -> None:
        self._state = state
        self._name = f"map {name}"
        self._key = key

    def _part(self, number: int) -> dict[str, tuple[object, object]]:
        return self._state.get(self._name, {**self._key, _PART: number}) or {}

    def _put(self, number: int, part: dict[str, tuple[object, object]]) -> None:
        self._state.put(self._name, {**self._key, _PART: number}, part or None)
        used = self._used()
        if bool(part) != (number in used):
            numbers = sorted({*used, number} if part else {*used} - {number})
            self._state.put(f"{self._name} parts", self._key, numbers or None)

    def _used(self) -> list[int]:
        return self._state.get(f"{self._name} parts", self._key) or []

    @staticmethod
    def _number(entry: str) -> int:
        return crc32(entry.encode()) % PARTS

    def __getitem__(self, key: object) -> Any:
        entry = repr(key)
        return own_value(self._part(self._number(entry))[entry][1], self._state)

    def __setitem__(self, key: object, value: object) -> None:
        entry = repr(key)
        number = self._number(entry)
        self._put(number, {**self._part(number), entry: (key, value)})

    def __delitem__(self, key: object) -> None:
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
        """Clears part by part: entry by entry, each would be looked up and removed from its part."""
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

    def _part(self, number: int) -> list[object]:
        return self._state.get(self._name, {**self._key, _PART: number}) or []

    def append(self, value: object) -> None:
        length = len(self)
        number = length // PART_LENGTH
        self._state.put(self._name, {**self._key, _PART: number}, [*self._part(number), value])
        self._state.put(f"{self._name} length", self._key, length + 1)

    def extend(self, values: Iterable[object]) -> None:
        for value in values:
            self.append(value)

    def clear(self) -> None:
        for number in range(-(-len(self) // PART_LENGTH)):
            self._state.put(self._name, {**self._key, _PART: number}, None)
        self._state.put(f"{self._name} length", self._key, None)

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"the list has {length} values, not one at {index}")
        index %= length
        return own_value(self._part(index // PART_LENGTH)[index % PART_LENGTH], self._state)

    def __len__(self) -> int:
        length: int = self._state.get(f"{self._name} length", self._key) or 0
        return length


class Version(NamedTuple):
    """A value, and when it is true: from `timestamp` up to, and without, `valid_to`, in milliseconds. None: it still is."""

    value: Any
    timestamp: int
    valid_to: int | None


class KeyedVersions:
    """Versions of values by time, for a processor of the user's.

    `put(entry, value, timestamp)`, `get(entry)`, `get(entry, as_of=time)`. Entries are plain values or tuples of such.
    """

    def __init__(self, state: TaskState, name: str, key: Fields, history_ms: int) -> None:
        self._state = state
        self._clock = f"versions {name}"
        self._history_ms = history_ms
        self._entries = entries_of(state, name, key)

    def put(self, entry: object, value: object, timestamp: int) -> bool:
        """Sets the value that is true from `timestamp` on, until the next one; None: there is none. Returns False for a time
        before the history: nothing changes then."""
        when = timestamp_type().fitted(timestamp)
        if when is None:
            raise ValueError("a version needs a timestamp in milliseconds, not None")
        seen = max(when, self._seen())
        self._state.put(self._clock, _TASK, seen)
        if when < seen - self._history_ms:
            return False
        versions = self._versions(entry)
        index = bisect_left(versions, when, key=lambda version: version[0])
        is_same = index < len(versions) and versions[index][0] == when
        versions[index : index + is_same] = [(when, value)]
        self._keep(entry, versions, seen - self._history_ms)
        return True

    def delete(self, entry: object, timestamp: int) -> Version | None:
        """Ends the value at `timestamp` (ms). Returns the version that was true then."""
        before = self.get(entry, as_of=timestamp)
        self.put(entry, None, timestamp)
        return before

    def get(self, entry: object, as_of: int | None = None) -> Version | None:
        """Returns the latest version, or the one that was true at `as_of`. None where there is none, or the history is
        shorter."""
        versions = self._versions(entry)
        index = (
            len(versions) if as_of is None else bisect_right(versions, as_of, key=lambda version: version[0])
        )
        if not index:
            return None
        is_latest = index == len(versions)
        if as_of is not None and not is_latest and as_of < self._seen() - self._history_ms:
            return None
        timestamp, value = versions[index - 1]
        return None if value is None else Version(value, timestamp, None if is_latest else versions[index][0])

    def between(self, entry: object, since: int, until: int) -> Iterator[Version]:
        """Yields the versions that were true at some time from `since` to `until`, both included, by time (KIP-968)."""
        versions = self._versions(entry)
        ends = [*(time for time, _ in versions[1:]), None]
        for (timestamp, value), valid_to in zip(versions, ends, strict=True):
            is_within = timestamp <= until and (valid_to is None or valid_to > since)
            if value is not None and is_within:
                yield Version(value, timestamp, valid_to)

    def _seen(self) -> int:
        """Returns the largest time that was put, by any key of the task."""
        seen: int | None = self._state.get(self._clock, _TASK)
        return -1 if seen is None else seen

    def _versions(self, entry: object) -> list[tuple[int, Any]]:
        return list(self._entries.get(entry) or ())

    def _keep(self, entry: object, versions: list[tuple[int, Any]], oldest: int) -> None:
        """Writes the versions, without those that end before the history begins."""
        index = bisect_right(versions, oldest, key=lambda version: version[0])
        retained = versions[max(0, index - 1) :]
        while (
            retained and retained[0][1] is None and retained[0][0] <= oldest
        ):  # no version can come before it
            del retained[0]
        if retained:
            self._entries[entry] = retained
        else:
            self._entries.pop(entry, None)


def entries_of(state: TaskState, name: str, key: Fields) -> KeyedMap:
    """Returns the map that holds the versions of each entry. No map of a program's has its name."""
    return KeyedMap(state, f"\0versions {name}", key)


class KeyedState(dict[str, Any]):
    """Values of one key, and by name its maps and lists."""

    def __init__(
        self, state: TaskState, key: Fields, values: dict[str, Any], collections: Iterable[str]
    ) -> None:
        super().__init__(values)
        self._state = state
        self._key = key
        self.collections = set(collections)
        """The collections that were used: `map NAME`, `list NAME`, `versions NAME`."""

    def map(self, name: str) -> KeyedMap:
        """Returns a map, made at its first use: for many entries of which few change at a time."""
        self.collections.add(f"map {name}")
        return KeyedMap(self._state, name, self._key)

    def list(self, name: str) -> KeyedList:
        """Returns a list, made at its first use: for many values that are added one by one."""
        self.collections.add(f"list {name}")
        return KeyedList(self._state, name, self._key)

    def versioned(self, name: str, *, history: Length) -> KeyedVersions:
        """Values with the time from which each is true, for entries of any name (Kafka Streams: a versioned store).

        `history`: how long an earlier version is found, such as "1 day". It is the same wherever the name is used.
        """
        self.collections.add(f"versions {name}")
        return KeyedVersions(self._state, name, self._key, milliseconds(history, "history"))

    def filled(self) -> tuple[str, ...]:
        """Returns the maps and lists that hold something."""
        return tuple(sorted(name for name in self.collections if len(self._collection(name))))

    def clear(self) -> None:
        """Forgets everything, maps and lists too."""
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
        if kind == "versions":
            return entries_of(self._state, own, self._key)
        return (KeyedMap if kind == "map" else KeyedList)(self._state, own, self._key)
