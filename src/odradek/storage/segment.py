"""One segment: the batches from its base offset to the next segment's, and where in the file they are.

The last segment of a log has a `writer` (its files, open for writing) and its index in memory. The others have neither:
their files are opened when a reader comes, checked before their indexes are believed, and closed again when others need the
place. Positions that a reader is likely to ask for next are remembered, so that sequential reads need no index at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Buffer, Disk, DiskFile
from odradek.storage import naming
from odradek.storage.batch_walk import BATCH_BYTES_MIN, BrokenChain, Mark, last_boundary, mark_at, walk
from odradek.storage.damage import DamagedBatchError
from odradek.storage.index_checks import build_index, offsets_are_sound, resume_with, times_are_sound
from odradek.storage.open_files import OpenFiles
from odradek.storage.sparse_index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    ActiveIndex,
    OffsetEntry,
    OffsetIndexFile,
    TimeEntry,
    TimeIndexFile,
)
from odradek.storage.transaction_index import TransactionIndex
from odradek.storage.trust import Trust
from odradek.telemetry import events

log = events.get("storage")

_HINTS_MAX: Final = 64
_MAP_BYTES_MIN: Final = 256 * 1024
"""Below this, copying costs less than mapping does."""
OFFSET_MAX: Final = 2**63 - 1


class Chunk(NamedTuple):
    """Whole batches out of one segment, and the offset behind the last of them."""

    data: Buffer
    next_offset: int


class SegmentWriter:
    """The open files of a segment from its creation until, sealed, all of it is durable.

    `sync` runs on any thread, one at a time under the log's lock; everything else on the loop.
    """

    __slots__ = ("base_offset", "durable", "index_files", "log_file", "sealed", "transaction_file")

    def __init__(self, log_file: DiskFile) -> None:
        self.log_file = log_file
        self.index_files: tuple[DiskFile, ...] = ()
        """`.index` and `.timeindex`, once there was something to write: an idle partition holds one open file."""
        self.transaction_file: DiskFile | None = None
        """`.txnindex`, once there were aborted transactions to write."""
        self.base_offset = 0
        """Of its segment, once that is sealed."""
        self.sealed = False
        """Nothing more will be written, and the index files are complete."""
        self.durable = False
        """Sealed and synced: there is nothing left to do."""

    def sync(self) -> None:
        """Make durable what was written before the call; the indexes only once they are complete."""
        if self.durable:
            return
        sealed = self.sealed
        self.log_file.sync()
        if sealed:
            for file in self.index_files:
                file.sync()
            self.sync_transactions()
            self.durable = True

    def sync_transactions(self) -> None:
        """Unlike the other indexes this one cannot be checked against the log: it must be right after a clean close."""
        if self.transaction_file is not None:
            self.transaction_file.sync()

    def close(self) -> None:
        for file in (self.log_file, *self.index_files):
            file.close()
        if self.transaction_file is not None:
            self.transaction_file.close()


class Segment:
    """Used on the event loop only."""

    __slots__ = (
        "_directory",
        "_disk",
        "_files",
        "_hints",
        "_max_time",
        "_offsets_checked",
        "_times_checked",
        "aborted",
        "appended_ms",
        "base_offset",
        "first_append_ms",
        "held",
        "index",
        "index_interval_bytes",
        "pinned",
        "size_bytes",
        "trust",
        "writer",
    )

    def __init__(
        self,
        disk: Disk,
        files: OpenFiles,
        directory: str,
        base_offset: int,
        size_bytes: int,
        *,
        index_interval_bytes: int,
    ) -> None:
        self._disk = disk
        self._files = files
        self._directory = directory
        self._hints: dict[int, int] = {}
        self._offsets_checked = False
        self._times_checked = False
        self._max_time: TimeEntry | None = None
        self.base_offset = base_offset
        self.size_bytes = size_bytes
        self.trust = Trust(size_bytes)
        """In what was in the file before; what is written is trusted."""
        self.index_interval_bytes = index_interval_bytes
        self.forget_aborted()
        self.appended_ms = -1
        """When it was last written, by the wall clock; -1 until asked for or written."""
        self.first_append_ms = -1
        """When its first batch was written; -1 while it is empty."""
        self.held = False
        """A compaction works on it: it must not be deleted."""
        self.index: ActiveIndex | None = None
        self.writer: SegmentWriter | None = None
        self.pinned: DiskFile | None = None
        """A compaction's file on its way to the segment's name; its index is in memory until then."""

    def share(self, files: OpenFiles) -> None:
        """From now on read through `files`."""
        self._files = files
        self.aborted.share(files)

    def forget_aborted(self) -> None:
        """What its transaction index said is to be found out anew."""
        self.aborted = TransactionIndex(self._disk, self._files, self.path(naming.TRANSACTION_INDEX))

    def path(self, kind: str) -> str:
        return naming.join(self._directory, naming.offset_file(self.base_offset, kind))

    @property
    def log_file(self) -> DiskFile:
        if self.writer is not None:
            return self.writer.log_file
        return self.pinned if self.pinned is not None else self._files.get(self.path(naming.LOG))

    def unpin(self) -> None:
        """The files that a compaction wrote have the segment's names."""
        self.pinned = self.index = None
        self._offsets_checked = self._times_checked = True

    # ---- writing ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the log file, empty, and become a log's active segment."""
        self.open_writer(create=True).log_file.truncate(0)
        self.index = ActiveIndex(self.base_offset)

    def open_writer(self, *, create: bool = False) -> SegmentWriter:
        """Open the log file for appending."""
        path = self.path(naming.LOG)
        self._files.forget(path)
        self.writer = SegmentWriter(self._disk.open(path, create=create))
        return self.writer

    def begin_aside(self) -> None:
        """The same, under a name of its own: files of other segments are still there, and go first."""
        path = self.path(naming.LOG) + naming.TEMPORARY
        self.writer = SegmentWriter(self._disk.open(path, create=True))
        self.writer.log_file.truncate(0)
        self.index = ActiveIndex(self.base_offset)

    def cut(self, position: int, end_offset: int) -> list[DiskFile]:
        """Become a log's active segment, of the first `position` bytes, which end at `end_offset`. The files follow later.

        Returns files that are still open and not needed. An OSError, or KAFKA_STORAGE_ERROR, leaves the segment as it was.
        """
        index = self._index_of_first(position)
        writer = self.writer if self.writer is not None else self.open_writer()
        stale = [*writer.index_files]
        aborted = self.aborted.cut(end_offset)
        if aborted is not None:
            stale.append(aborted)
        writer.index_files, writer.transaction_file = (), None
        self.index = index
        self.size_bytes = position
        self.trust.cut(position)
        self._hints.clear()
        self._max_time = None
        self._offsets_checked = self._times_checked = True
        return stale

    def _index_of_first(self, position: int) -> ActiveIndex:
        index = self.index
        if index is None:
            offsets, times = (
                self._disk.read(self.path(kind)) if self._disk.exists(self.path(kind)) else b""
                for kind in (naming.OFFSET_INDEX, naming.TIME_INDEX)
            )
            offsets = offsets[: len(offsets) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
            index = ActiveIndex.of_files(
                self.base_offset, offsets, times[: len(times) // TIME_ENTRY.size * TIME_ENTRY.size]
            )
        arguments = self.log_file, self.base_offset, position, self.index_interval_bytes
        built = resume_with(*arguments, index.cut(position))
        try:
            return built.index if built is not None else build_index(*arguments).index
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def write_index(self) -> None:
        """Put index entries that are only in memory into the files. An OSError leaves everything as it was."""
        writer, index = self.writing()
        if not writer.index_files:
            writer.index_files = self._open_index_files(index)
        index.write(*writer.index_files)
        try:
            self.aborted.write()
        finally:
            writer.transaction_file = self.aborted.file

    def _open_index_files(self, index: ActiveIndex) -> tuple[DiskFile, ...]:
        """The files with exactly the entries that were written before, whatever else was in them."""
        opened: list[DiskFile] = []
        written = (
            (naming.OFFSET_INDEX, index.offset_bytes_written),
            (naming.TIME_INDEX, index.time_bytes_written),
        )
        try:
            for kind, length in written:
                self._files.forget(self.path(kind))
                opened.append(self._disk.open(self.path(kind), create=True))
                opened[-1].truncate(length)
        except OSError:
            for file in opened:
                file.close()
            raise
        return tuple(opened)

    def complete_index(self) -> None:
        """No batch will follow: write the last time entry, too. An OSError leaves the segment fit for more batches."""
        _, index = self.writing()
        index.seal()
        self.write_index()

    def detach(self) -> SegmentWriter:
        """The segment is complete and from now on read through the shared files. The writer is for who makes it durable."""
        writer, _ = self.writing()
        writer.sealed = True
        writer.base_offset = self.base_offset
        self.aborted.detach()
        self._offsets_checked = self._times_checked = True
        self.writer = None
        self.index = None
        return writer

    def writing(self) -> tuple[SegmentWriter, ActiveIndex]:
        """What only the active segment has."""
        if self.writer is None or self.index is None:
            raise AssertionError(f"segment {self.base_offset} is not the active one")
        return self.writer, self.index

    # ---- reading ---------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        segment_end: int,
        at_least_one: bool,
        to_send: bool = False,
    ) -> Chunk | None:
        """Whole batches from the one that holds `offset` (or the next), none of which reaches `end_offset`.

        `segment_end` is where the next segment begins. A first batch larger than `max_bytes` is returned all the same
        if `at_least_one`; otherwise the chunk is empty. None: this segment has nothing from `offset` on. With `to_send` the
        data may be a range of the file that only the kernel may read.
        """
        start = self.locate(offset)
        to_end = end_offset >= segment_end
        limit = self.size_bytes if to_end else self.locate(end_offset)
        if start >= limit:
            if to_end:
                self.trust.check_end(offset, segment_end, self._directory)
            return None
        wanted = min(max_bytes, limit - start)
        if to_send and wanted >= _MAP_BYTES_MIN and not self.trust.is_doubtful(start, start + wanted):
            end = min(end_offset, segment_end) if start + wanted == limit else None
            chunk = self._mapped(start, start + wanted, end)
            if chunk is not None:
                return chunk
        data = self.log_file.pread(wanted, start) if wanted > 0 else b""
        if start + len(data) == limit:
            chunk = Chunk(data, min(end_offset, segment_end))
            return self._sound(chunk, start, offset, segment_end if to_end else -1)
        whole, next_offset = self._whole_batches(data, start)
        if whole:
            chunk = Chunk(data if whole == len(data) else memoryview(data)[:whole], next_offset)
            return self._sound(chunk, start, offset)
        return self._first_batch(start, limit, offset) if at_least_one else Chunk(b"", offset)

    def _sound(self, chunk: Chunk, start: int, offset: int, segment_end: int = -1) -> Chunk:
        """The same, once it is known to be what was written; the next reader will ask for what follows it."""
        self.trust.check(chunk.data, start, offset, self._directory, segment_end)
        self.remember(chunk.next_offset, start + len(chunk.data))
        return chunk

    def _mapped(self, start: int, limit: int, next_offset: int | None) -> Chunk | None:
        """The batches between the positions, uncopied; `next_offset` is known where `limit` is a boundary of batches.

        None: the file cannot be mapped, or the index does not help to find the boundary. Then reading is as good.
        """
        if next_offset is None:
            entry = self._floor_by_position(limit - 1)
            if entry is None or entry.position <= start:
                return None
            try:
                mark = self.mark(entry.position)
                if mark.last_offset != entry.offset:
                    return None
                boundary = last_boundary(self.log_file, entry.position, limit)
            except (BrokenChain, KafkaError):
                return None
            limit, next_offset = boundary or (entry.position, mark.base_offset)
        data = self.log_file.map(limit - start, start) if limit - start >= _MAP_BYTES_MIN else None
        if data is None:
            return None
        self.remember(next_offset, limit)
        return Chunk(data, next_offset)

    def _first_batch(self, start: int, limit: int, offset: int) -> Chunk:
        mark = self.mark(start)
        if start + mark.size_bytes > limit:
            raise self._damaged(BrokenChain(start, f"a batch of {mark.size_bytes} bytes cut short"))
        chunk = Chunk(self.log_file.pread(mark.size_bytes, start), mark.last_offset + 1)
        return self._sound(chunk, start, offset)

    def _whole_batches(self, data: bytes, start: int) -> tuple[int, int]:
        """How many bytes of `data` are whole batches, and the offset behind them. It hops from the last index entry."""
        below = start + len(data) - 1
        while (entry := self._floor_by_position(below)) is not None and entry.position > start:
            found = _hop(data, entry.position - start, entry)
            if found is None:
                self._rebuild("an offset index entry points nowhere")
                break
            if found[0]:
                return found
            below = entry.position - 1
        return _hop(data, 0, None) or (0, -1)

    def locate(self, offset: int) -> int:
        """The byte position of the first batch that ends at or behind `offset`; the segment's size when none does."""
        if offset <= self.base_offset:
            return 0
        hint = self._hints.get(offset)
        return hint if hint is not None else self._search(offset)

    def _search(self, offset: int) -> int:
        entry = self._floor(offset)
        if entry is not None:
            try:
                return self._walk_to(offset, entry)
            except BrokenChain as doubt:
                self._rebuild(doubt.reason)
        try:
            return self._walk_to(offset, self._floor(offset))
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def _walk_to(self, offset: int, entry: OffsetEntry | None) -> int:
        position = entry.position if entry is not None else 0
        if entry is not None and not 0 <= position < self.size_bytes:
            raise BrokenChain(position, "an offset index entry points outside of the log")
        for mark in walk(self.log_file, position, self.size_bytes):
            if entry is not None and mark.position == position and mark.last_offset != entry.offset:
                raise BrokenChain(position, "an offset index entry names another batch")
            if mark.last_offset >= offset:
                return mark.position
        return self.size_bytes

    def last_batch(self) -> Mark | None:
        """The last batch, read from the file; None in an empty segment."""
        self._search(OFFSET_MAX)  # finds out whether the last index entry is true
        entry = self._floor(OFFSET_MAX)
        last = None
        for mark in self.marks(entry.position if entry is not None else 0):
            last = mark
        return last

    def mark_before(self, position: int) -> Mark:
        """The batch that ends at byte `position`, which is not the first."""
        entry = self._floor_by_position(position - 1)
        if entry is not None and self.mark(entry.position).last_offset != entry.offset:
            self._rebuild("an offset index entry names another batch")
            entry = self._floor_by_position(position - 1)
        for mark in self.marks(entry.position if entry is not None else 0):
            if mark.position + mark.size_bytes >= position:
                return mark
        raise self._damaged(BrokenChain(position, "no batch ends here"))

    def remember(self, offset: int, position: int) -> None:
        """The batch that begins with `offset` is (or will be) at `position`."""
        hints = self._hints
        if len(hints) >= _HINTS_MAX:
            del hints[next(iter(hints))]
        hints[offset] = position

    def mark(self, position: int) -> Mark:
        """The header of the batch at `position`."""
        try:
            return mark_at(self.log_file.pread(BATCH_BYTES_MIN, position), 0, position)
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    def batch(self, mark: Mark) -> bytes:
        return self.log_file.pread(mark.size_bytes, mark.position)

    def marks(self, start: int = 0) -> Iterator[Mark]:
        """The headers of all batches from byte `start` on."""
        try:
            yield from walk(self.log_file, start, self.size_bytes)
        except BrokenChain as damage:
            raise self._damaged(damage) from None

    # ---- time ------------------------------------------------------------------------------------------------------

    def last_append_ms(self) -> int:
        """When the file was last appended to: what retention goes by."""
        if self.appended_ms < 0:
            self.appended_ms = self._disk.modified_ms(self.path(naming.LOG))
        return self.appended_ms

    def max_timestamp(self) -> TimeEntry | None:
        """The largest timestamp in the segment and the last offset of the first batch that has it."""
        if self.index is not None:
            found = TimeEntry(self.index.max_timestamp, self.index.max_timestamp_offset)
            return found if found.timestamp >= 0 else None
        if self._max_time is None:
            self._check_times()
            self._max_time = self._time_file().last if self.index is None else self.index.last_time
        return self._max_time

    def floor_time(self, timestamp: int) -> TimeEntry | None:
        """The last time entry at or before `timestamp`, checked against the batch that it names."""
        if self.index is None:
            self._check_times()
        entry = self._floor_time(timestamp)
        if entry is None or self.index is not None or self._is_true(entry):
            return entry
        self._rebuild("a time index entry is not true of its batch")
        return self._floor_time(timestamp)

    def _floor_time(self, timestamp: int) -> TimeEntry | None:
        index = self.index
        return index.floor_time(timestamp) if index is not None else self._time_file().floor(timestamp)

    def _is_true(self, entry: TimeEntry) -> bool:
        position = self.locate(entry.offset)
        if position >= self.size_bytes:
            return False
        mark = self.mark(position)
        return (mark.last_offset, mark.max_timestamp) == (entry.offset, entry.timestamp)

    # ---- indexes of segments that are no longer written ------------------------------------------------------------

    def _floor(self, offset: int) -> OffsetEntry | None:
        if self.index is None:
            self._check_offsets()
        return self.index.floor(offset) if self.index is not None else self._offset_file().floor(offset)

    def _floor_by_position(self, position: int) -> OffsetEntry | None:
        if self.index is None:
            self._check_offsets()
        index = self.index if self.index is not None else self._offset_file()
        return index.floor_by_position(position)

    def _offset_file(self) -> OffsetIndexFile:
        file = self._files.get(self.path(naming.OFFSET_INDEX))
        return OffsetIndexFile(file, self.base_offset, file.length())

    def _time_file(self) -> TimeIndexFile:
        file = self._files.get(self.path(naming.TIME_INDEX))
        return TimeIndexFile(file, self.base_offset, file.length())

    def _check_offsets(self) -> None:
        """Once, before the offset index file is used for the first time."""
        if self._offsets_checked:
            return
        self._offsets_checked = True
        try:
            index = self._offset_file()
            whole = self._files.get(self.path(naming.OFFSET_INDEX)).length() % OFFSET_ENTRY.size == 0
            sound = whole and offsets_are_sound(
                self.log_file, self.size_bytes, self.index_interval_bytes, index.last
            )
        except FileNotFoundError:
            sound = False
        if not sound:
            self._rebuild("the offset index is missing, short or wrong")

    def _check_times(self) -> None:
        """Once, before the time index file is used for the first time."""
        if self._times_checked:
            return
        self._times_checked = True
        try:
            index = self._time_file()
            whole = self._files.get(self.path(naming.TIME_INDEX)).length() % TIME_ENTRY.size == 0
            sound = whole and times_are_sound(
                self.log_file, self.size_bytes, self.size_bytes, self._floor, index.last
            )
        except FileNotFoundError:
            sound = False
        if not sound and self.index is None:
            self._rebuild("the time index is missing, short or wrong")

    def _rebuild(self, reason: str) -> None:
        """Make both indexes again from the log. Where they cannot be written they live in memory."""
        log.warning("index_rebuilt", directory=self._directory, base_offset=self.base_offset, reason=reason)
        try:
            index = build_index(
                self.log_file, self.base_offset, self.size_bytes, self.index_interval_bytes
            ).index
        except BrokenChain as damage:
            raise self._damaged(damage) from None
        self._offsets_checked = self._times_checked = True
        self._hints.clear()
        if self.writer is not None:
            self.index = index
            return
        index.seal()
        try:
            write_index_files(self._disk, self._files, self, index)
        except OSError as error:
            log.warning(
                "index_not_written", directory=self._directory, base_offset=self.base_offset, error=error
            )
            self.index = index

    def _damaged(self, damage: BrokenChain) -> DamagedBatchError:
        path, offset = self.path(naming.LOG), self._offset_at(damage.position)
        log.error("segment_damaged", path=path, position=damage.position, offset=offset, reason=damage.reason)
        message = f"{path} is damaged {damage}, where offset {offset} should be"
        return DamagedBatchError(ErrorCode.KAFKA_STORAGE_ERROR, message, offset)

    def _offset_at(self, position: int) -> int:
        """Where the batches in front of byte `position`, or as many as can be read, end."""
        offset = self.base_offset
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, position):
                offset = mark.last_offset + 1
        return offset

    def damaged_at(self, offset: int) -> int:
        """Like `locate` in a segment where that fails: the first batch that reaches to `offset` or cannot be read."""
        position = 0
        with suppress(BrokenChain):
            for mark in walk(self.log_file, 0, self.size_bytes):
                if mark.last_offset >= offset:
                    break
                position = mark.position + mark.size_bytes
        return position


def _hop(data: bytes, index: int, entry: OffsetEntry | None) -> tuple[int, int] | None:
    """From `index` on: (bytes of `data` up to the last whole batch, offset behind it), (0, -1) without any.

    None when `entry`, which led here, is not true of the batch.
    """
    whole, next_offset = 0, -1
    while index + BATCH_BYTES_MIN <= len(data):
        try:
            mark = mark_at(data, index, index)
        except BrokenChain:
            return None if entry is not None and not whole else (whole, next_offset)
        if entry is not None and not whole and mark.last_offset != entry.offset:
            return None
        index += mark.size_bytes
        if index > len(data):
            break
        whole, next_offset = index, mark.last_offset + 1
    return whole, next_offset


def write_index_files(disk: Disk, files: OpenFiles, segment: Segment, index: ActiveIndex) -> None:
    """Replace a segment's index files by what `index` holds. Not synced: a later check finds what a crash leaves."""
    for kind, data in ((naming.OFFSET_INDEX, index.offset_bytes()), (naming.TIME_INDEX, index.time_bytes())):
        path = segment.path(kind)
        files.forget(path)
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
        finally:
            file.close()
