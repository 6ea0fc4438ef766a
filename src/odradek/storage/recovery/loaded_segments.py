"""The segments of a log that is being opened, and where it ends, as far as that is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload
from zlib import crc32

from odradek.storage.files import naming
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.segment.index_checks import BuiltIndex
from odradek.storage.segment.segment import Segment


class LoadedSegments(Sequence[Segment]):
    """The segments of a log that is being opened, the oldest first. The last one becomes the active segment."""

    def __init__(self, context: LoadContext) -> None:
        self._context = context
        self._segments: list[Segment] = []
        self.end_offset = 0
        """The log's end offset, once there is an active segment."""
        self.last_epoch = -1
        """The leader epoch of the last batch, if that was read."""
        self.scanned: Sequence[Segment] = ()
        """Segments that recovery read: it builds their transaction indexes again."""

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @overload
    def __getitem__(self, number: int) -> Segment: ...
    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...
    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._segments[number]

    @property
    def base_offset(self) -> int:
        """The base offset of the first segment."""
        return self._segments[0].base_offset

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    # ---- finding -----------------------------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> None:
        """Finds segments by the names and sizes of their files; reads only transaction indexes, which few segments have."""
        disk, present = self._context.disk, frozenset(names)
        for name in names:
            file = naming.parse_offset_file(name)
            if file is not None and file.kind == naming.LOG and not file.state:
                segment = self._add(file.offset, disk.length(self._context.path(name)))
                index = naming.offset_file(file.offset, naming.TRANSACTION_INDEX)
                if index in present:
                    data = disk.read(self._context.path(index))
                    segment.aborted.found(len(data), crc32(data))

    def create(self, base_offset: int) -> None:
        """Creates the first and only segment, empty."""
        self._add(base_offset, 0).begin()
        self.end_offset = base_offset

    def _add(self, base_offset: int, size_bytes: int) -> Segment:
        context = self._context
        segment = Segment(
            context.disk,
            context.files,
            context.directory,
            base_offset,
            size_bytes,
            index_interval_bytes=context.opening.config.index_interval_bytes,
        )
        segment.reader.checked.gaps_below = context.opening.cleaned_offset
        self._segments.append(segment)
        return segment

    # ---- dropping ----------------------------------------------------------------------------------------------------

    def drop_empty(self, segments: Sequence[Segment]) -> None:
        """Removes empty segments that others follow: a roll failed, and the log continued."""
        for segment in segments:
            if not segment.size_bytes:
                log.warning("empty_segment_removed", path=segment.path(naming.LOG))
                self._context.disk.remove(segment.path(naming.LOG))
                self._segments.remove(segment)

    def keep_first(self, count: int) -> None:
        """Drops the segments after these; their files are not in the log any more."""
        del self._segments[count:]

    # ---- the active segment ------------------------------------------------------------------------------------------

    def activate(self, built: BuiltIndex) -> None:
        """Makes the last segment, which is open for writing, the active one with this index."""
        active = self.active
        active.index.keep_in_memory(built.index)
        self.end_offset = built.next_offset
        self.last_epoch = max(self.last_epoch, built.leader_epoch)
        if active.size_bytes:
            active.first_append_ms = self._first_append_ms(active)

    def _first_append_ms(self, active: Segment) -> int:
        """Returns the time of the last write to the segment before, or the first batch's timestamp if it is not after the
        last write."""
        if len(self._segments) > 1:
            return self._segments[-2].records.last_append_ms()
        written_ms, claimed_ms = active.records.last_append_ms(), active.records.mark(0).max_timestamp
        return min(claimed_ms, written_ms) if claimed_ms >= 0 else written_ms

    def hand_over(self, latest_epoch: int) -> list[Segment]:
        """Returns the segments to the open log, which reads them through the files that all logs share."""
        for segment in self._segments:
            segment.share(self._context.opening.files)
            segment.reader.checked.epoch_max = latest_epoch
        return self._segments

    def close(self) -> None:
        """Closes the segments' writers after the opening failed."""
        for segment in self._segments:
            segment.close_writer()
