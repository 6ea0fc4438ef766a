"""A partition's files on their way to another data directory (KIP-113).

How a move stays safe. The files are copied into `<topic>-<partition>.<id>-future`, pass by pass, while the log is read and
written: each pass copies what is new or changed. When little is missing, the log is closed, a last pass copies the rest, and
everything in the future directory is synced. Then two renames, each durable before the next:

    1  <topic>-<partition>             ->  <topic>-<partition>.<id>-replaced     in the old directory: this decides
    2  <topic>-<partition>.<id>-future ->  <topic>-<partition>                   in the new one

and only then is the log opened again, so nothing was acknowledged that only one of the two has. A crash before 1 leaves the log
where it was, and the future directory is thrown away. A crash between them leaves a `-replaced` and a `-future` of one id: the
move is finished at the next start (`LogDirectories`), from files that are complete. After 2 the replaced directory is garbage.

Copying files, and not records, keeps everything as it is: offsets, gaps of compaction, indexes, producer snapshots, and the
times of files, from which ages are counted.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.runtime.ports import Disk, DiskFile
from odradek.storage.files import naming

FUTURE: Final = "-future"
REPLACED: Final = "-replaced"
_PIECE_BYTES: Final = 1 << 20
_PASSING: Final = (naming.DELETED, naming.CLEANED, naming.TEMPORARY)
"""Endings of files that are on their way in or out."""
_MOVING = re.compile(r"(.+)\.([0-9a-f]{32})(-future|-replaced)\Z")
_NAME_BYTES_MAX: Final = 255


class MovingDirectory(NamedTuple):
    """The parts of a moving directory's name; `suffix` is FUTURE or REPLACED."""

    partition: TopicPartition
    move_id: str
    suffix: str


def moving_directory(partition: TopicPartition, move_id: str, suffix: str) -> str:
    """Returns the name of a directory. INVALID_TOPIC_EXCEPTION where it would be longer than a file system allows."""
    name = f"{partition}.{move_id}{suffix}"
    if len(name) > _NAME_BYTES_MAX:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"the name of {partition} is too long for a move between directories",
        )
    return name


def parse_moving_directory(name: str) -> MovingDirectory | None:
    """Returns None for a directory that no move has named."""
    match = _MOVING.match(name)
    partition = naming.parse_partition_directory(match[1]) if match else None
    return MovingDirectory(partition, match[2], match[3]) if match and partition else None


class _FileStamp(NamedTuple):
    length: int
    modified_ms: int


class FolderCopy:
    """One log's files, copied pass by pass. `begin` and the passes block: call them on any thread, one at a time."""

    def __init__(self, disk: Disk, source: str, target: str) -> None:
        self._disk = disk
        self._seen: dict[str, _FileStamp] = {}
        self._stopped = False
        self.source: Final = source
        self.target: Final = target
        self.size_bytes = 0
        """The bytes of all `.log` files in the source directory."""
        self.truncation_count = 0
        """The log's truncation count when the first pass began: another truncation makes the copy worthless."""
        self.copied_offset = 0
        """The log's end offset when the last complete pass began."""

    def stop(self) -> None:
        """Makes a pass under way end soon, with InterruptedError."""
        self._stopped = True

    def begin(self) -> None:
        """Makes the target directory durably."""
        self._disk.make_directory(self.target)
        self._disk.sync_directory(_parent(self.target))

    def forget_copied(self) -> None:
        """Discards the copy: the end of the log was removed, and may have been written again."""
        self._seen.clear()
        for name in self._disk.list_directory(self.target):
            self._disk.remove(naming.join(self.target, name))

    def run(self, end_offset: int = 0) -> int:
        """Copies and syncs what is new or changed since the last pass; returns how many bytes that were.

        `end_offset` is the log's now. Files that vanish meanwhile were deleted, and their copies go with the next pass.
        """
        names = self._names()
        active = max((name for name in names if name.endswith(naming.LOG)), default="")
        copied = 0
        for name in names:
            copied += self._copy_file(name, is_active=name == active)
        for name in [name for name in self._seen if name not in names]:
            del self._seen[name]
            self._disk.remove(naming.join(self.target, name))
        self._disk.sync_directory(self.target)
        self.size_bytes = sum(seen.length for name, seen in self._seen.items() if name.endswith(naming.LOG))
        self.copied_offset = end_offset
        return copied

    def _names(self) -> list[str]:
        return [name for name in self._disk.list_directory(self.source) if not name.endswith(_PASSING)]

    def _copy_file(self, name: str, *, is_active: bool) -> int:
        path = naming.join(self.source, name)
        try:
            now = _FileStamp(self._disk.length(path), self._disk.modified_ms(path))
            before = self._seen.get(name)
            if before == now and not is_active:
                return 0
            source = self._disk.open(path, write=False)
        except FileNotFoundError:
            return 0
        # Only the active segment grows at its end; what else changed was made again by a compaction, or is small.
        start = before.length if before is not None and is_active and before.length <= now.length else 0
        target = self._disk.open(naming.join(self.target, name), create=True)
        try:
            self._copy(source, target, start, now.length)
            target.sync()
        finally:
            source.close()
            target.close()
        self._disk.set_modified(naming.join(self.target, name), now.modified_ms)
        self._seen[name] = now
        return now.length - start

    def _copy(self, source: DiskFile, target: DiskFile, start: int, end: int) -> None:
        target.truncate(start)
        while start < end:
            if self._stopped:
                raise InterruptedError("the move was called off")
            piece = source.pread(min(_PIECE_BYTES, end - start), start)
            if not piece:
                return  # it was cut meanwhile: the next pass sees that it changed
            target.pwrite(piece, start)
            start += len(piece)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def rename_source(disk: Disk, copy: FolderCopy, replaced: str) -> None:
    """Makes the first rename: the move is decided."""
    disk.rename(copy.source, replaced)
    disk.sync_directory(_parent(replaced))


def put_in_place(disk: Disk, future: str, final: str) -> None:
    """Makes the second rename: the move is done."""
    disk.rename(future, final)
    disk.sync_directory(_parent(final))
