"""What a producer knows of each of its records: where it is, that it is there, or nothing."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

UNKNOWN: Final = -1
_SOMEWHERE: Final = -2
_SHIFT: Final = 40


class Ledger:
    """Records by their numbers, from 0 on."""

    def __init__(self) -> None:
        self._places = array("q")

    @property
    def places(self) -> array[int]:
        """The `place` of each record; below 0 where that is not known."""
        return self._places

    def __len__(self) -> int:
        return len(self._places)

    def sent(self) -> None:
        """One record more, and nothing is known of it yet."""
        self._places.append(UNKNOWN)

    def acknowledged(self, number: int, partition: int, offset: int | None) -> None:
        """Without an offset, it is there all the same: a broker that had forgotten where a record that comes again was put says
        only that it has it (DUPLICATE_SEQUENCE_NUMBER)."""
        self._places[number] = _SOMEWHERE if offset is None else place(partition, offset)

    @property
    def acknowledged_count(self) -> int:
        return sum(known_place != UNKNOWN for known_place in self._places)

    @property
    def placeless_count(self) -> int:
        """Of those acknowledged, the ones whose place is unknown."""
        return sum(known_place == _SOMEWHERE for known_place in self._places)

    def contradicts(self, number: int, partition: int, offset: int) -> bool:
        """Whether the record was said to be elsewhere."""
        return self._places[number] not in (UNKNOWN, _SOMEWHERE, place(partition, offset))

    def lost(self, is_there: Callable[[int], bool]) -> list[int]:
        """Those that were acknowledged, and are not there."""
        return [
            number
            for number, known_place in enumerate(self._places)
            if known_place != UNKNOWN and not is_there(number)
        ]


def place(partition: int, offset: int) -> int:
    """Where a record is, as one number."""
    return (partition << _SHIFT) | offset


def place_of(known_place: int) -> tuple[int, int]:
    """Partition and offset."""
    return known_place >> _SHIFT, known_place & ((1 << _SHIFT) - 1)
