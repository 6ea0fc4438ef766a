"""A disk that takes away, or rots, what was acknowledged, just when the broker crashed: the next opening must say so.

After a theft the opening is tried, and then everything is put back. What must be noticed follows from what the scenario itself
knows, and from the files: records below an offset that was written down as durable, and that no one was allowed to delete.
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from odradek.model.ids import TopicPartition
from odradek.storage.files import naming
from odradek.testing.sim.medium import Folder, Inode, Medium

_BATCH: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_DELTA_POSITION: Final = 23
_CHECKED_FROM: Final = 21
"""What of a batch its CRC speaks of."""


class _Stored(NamedTuple):
    base_offset: int
    folder: Folder
    name: str
    inode: Inode


@dataclass(frozen=True, slots=True, kw_only=True)
class Theft:
    """What was done to which partition. `put_back` before anything else is done with the medium."""

    partition: TopicPartition
    what: str
    _medium: Medium
    _before: Folder
    _capacity_bytes: int | None

    def put_back(self) -> None:
        self._medium.root = self._before
        self._medium.capacity_bytes = self._capacity_bytes


def steal(
    medium: Medium,
    paths: Sequence[str],
    name: TopicPartition,
    rng: Random,
    *,
    noted: int,
    removable_below: int,
) -> Theft | None:
    """Damage a partition's log so that it must be noticed; None where nothing can be.

    Everything below `noted` was written down as durable. Below `removable_below` segments may have been deleted.
    """
    segments_by_path = [(path, _segments(medium, f"{path}/{name}")) for path in paths]
    path, segments = max(segments_by_path, key=lambda entry: len(entry[1]))
    if not segments or any(segment.name.endswith(naming.SWAP) for segment in segments):
        return None
    is_clean = naming.CLEAN_SHUTDOWN in medium.folder(path).names
    choices = list(_choices(segments, noted, removable_below, is_clean=is_clean))
    if not choices:
        return None
    for _, inode in medium.root.files(""):
        inode.lock = None  # of the dead
    before, capacity_bytes = copy.deepcopy(medium.root), medium.capacity_bytes
    medium.capacity_bytes = None
    number, positions = rng.choice(choices)
    stolen = segments[number]
    if positions:
        position = rng.choice(positions)
        stolen.inode.flip_bit(position, rng.randrange(8))
        what = f"a bit of byte {position} of {stolen.name} is flipped"
    else:
        del stolen.folder.names[stolen.name]
        stolen.folder.sync()
        what = f"{stolen.name} is gone, the segment {number + 1} of {len(segments)}"
    return Theft(partition=name, what=what, _medium=medium, _before=before, _capacity_bytes=capacity_bytes)


def _segments(medium: Medium, path: str) -> list[_Stored]:
    try:
        folder = medium.folder(path)
    except FileNotFoundError:
        return []
    results = []
    for name in sorted(folder.names):
        file, node = naming.parse_offset_file(name), folder.names[name]
        if file is not None and file.kind == naming.LOG and not file.state and isinstance(node, Inode):
            results.append(_Stored(file.offset, folder, name, node))
    return results


def _choices(
    segments: Sequence[_Stored], noted: int, removable_below: int, *, is_clean: bool
) -> Iterator[tuple[int, list[int]]]:
    """Number of a segment, and positions in it that may be flipped; without any the segment may be removed."""
    first, last = segments[0], segments[-1]
    is_known = not any(
        name.endswith(naming.LOG + naming.DELETED)
        and isinstance(node, Inode)
        and not _is_whole(bytes(node.cache))
        for name, node in first.folder.names.items()
    )  # a deletion on a full disk leaves no more than a name to tell of it
    if last.base_offset < noted and noted > removable_below:
        yield len(segments) - 1, []
        positions = [] if is_clean else list(_positions(bytes(last.inode.cache), last.base_offset, noted))
        if positions:
            yield len(segments) - 1, positions
    is_wanted = len(segments) > 1 and removable_below < segments[1].base_offset <= noted
    if is_known and is_wanted and first.inode.cache:
        yield 0, []


def _is_whole(data: bytes) -> bool:
    """Not cut to make space."""
    position = 0
    while position + _BATCH.size <= len(data):
        base_offset, length = _BATCH.unpack_from(data, position)
        if length <= 0 or base_offset < 0:
            return False
        position += _BATCH.size + length
    return bool(data) and position == len(data)


def _positions(data: bytes, next_offset: int, noted: int) -> Iterator[int]:
    """Yields a position in each batch below `noted`, where its CRC sees a change. `next_offset` is that of the first batch.

    What a power cut left of a batch may begin with zeros: its offset is then below that of the batch before it.
    """
    position = 0
    while position + _DELTA_POSITION + _LAST_OFFSET_DELTA.size <= len(data):
        base_offset, length = _BATCH.unpack_from(data, position)
        end = position + _BATCH.size + length
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + _DELTA_POSITION)
        if not next_offset <= base_offset + delta < noted or end > len(data):
            return
        yield position + _CHECKED_FROM + (base_offset * 7919) % (end - position - _CHECKED_FROM)
        position, next_offset = end, base_offset + delta + 1
