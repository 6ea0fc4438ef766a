"""A log's face for compaction: read its sealed segments, keep some of them from deletion, replace them by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from odradek.runtime.ports import Disk
from odradek.storage.cleaning.choice import SegmentView, group_count
from odradek.storage.cleaning.keys import SourceSegment
from odradek.storage.cleaning.target import CleanedSegment
from odradek.storage.files import naming
from odradek.storage.files.lifetime import LogLifetime
from odradek.storage.files.open_files import OpenFiles
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_list import SegmentList
from odradek.storage.segment.transaction_index import ENTRY, AbortedTransaction

_FILE_KINDS = (naming.LOG, *naming.INDEX_SUFFIXES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGroup:
    """Segments that follow each other and become one."""

    segments: tuple[Segment, ...]
    sources: tuple[SourceSegment, ...]
    aborted: tuple[AbortedTransaction, ...]
    """The entries of the segments' transaction indexes."""
    modified_ms: int
    """The time of the last append to the last of the segments, in ms of the wall clock."""

    @property
    def base_offset(self) -> int:
        return self.sources[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.sources[-1].end_offset

    @property
    def size_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)


class CleaningAccess:
    """A log's face for compaction, which runs one compaction at a time. Used on the event loop only."""

    __slots__ = (
        "_directory",
        "_disk",
        "_files",
        "_on_replaced",
        "_segments",
        "_unsettled",
        "cancelled",
        "in_work",
        "life",
        "target",
        "uncleanable",
    )

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        segments: SegmentList,
        files: OpenFiles,
        life: LogLifetime,
        on_replaced: Callable[[], None],
    ) -> None:
        """`on_replaced` is called when segments were replaced: the transaction indexes are other ones."""
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._files = files
        self._on_replaced = on_replaced
        self.life = life
        self.in_work = False
        """A compaction of the log is under way."""
        self.cancelled = False
        """The compaction must end: the log was truncated, and its segments have changed."""
        self.target: CleanedSegment | None = None
        """The segment that the compaction writes, until it is committed."""
        self._unsettled: tuple[Segment, CleanedSegment, list[int]] | None = None
        """The committed segment that is read but does not have its own name yet, with the base offsets of those that it
        replaces."""
        self.uncleanable = ""
        """The reason why the log is not compacted any more; empty while it is."""

    def begin(self) -> None:
        """Begins a compaction, which is under way until `in_work` is False again."""
        self.in_work = True
        self.cancelled = False

    def abort(self) -> bool:
        """Ends the compaction under way, if there is one, because sealed segments are about to change: it must not replace any.

        True when it had begun to on the disk, which must be undone. It may wait for work on another thread, and does what a
        segment that replaced others still lacks. OSError.
        """
        if not self.in_work:
            return False
        self.cancelled = True
        if self._unsettled is not None:
            segment, target, originals = self._unsettled
            target.replace_originals(originals)
            self.settle(segment, target)
            return False
        return self.target is not None and not self.target.forbid()

    # ---- looking ---------------------------------------------------------------------------------------------------

    def sealed(self) -> list[SegmentView]:
        """Returns all but the active one, which is never touched."""
        return [self._view(number) for number in range(len(self._segments) - 1)]

    def _view(self, number: int) -> SegmentView:
        segment = self._segments[number]
        return SegmentView(
            base_offset=segment.base_offset,
            end_offset=self._segments.end_of(number),
            size_bytes=segment.size_bytes,
            first_append_ms=partial(self._first_append_ms, number),
            last_append_ms=segment.records.last_append_ms,
        )

    def _first_append_ms(self, number: int) -> int:
        """Returns the time of the segment's first append, or the best known earlier bound; never a later time."""
        segment = self._segments[number]
        if segment.first_append_ms >= 0:
            return segment.first_append_ms
        if number > 0:
            return self._segments[number - 1].records.last_append_ms()
        written_ms, claimed_ms = segment.records.last_append_ms(), segment.records.mark(0).max_timestamp
        return min(claimed_ms, written_ms) if claimed_ms >= 0 else written_ms

    def sources(self, first_offset: int, end_offset: int) -> list[SourceSegment]:
        """Returns the sealed segments that reach beyond `first_offset` and end at or below `end_offset`."""
        return [
            self._source(number)
            for number, view in enumerate(self.sealed())
            if view.end_offset > first_offset and view.end_offset <= end_offset
        ]

    def _source(self, number: int) -> SourceSegment:
        segment = self._segments[number]
        end_offset = self._segments.end_of(number)
        return SourceSegment(segment.base_offset, end_offset, segment.size_bytes, segment.path(naming.LOG))

    def next_group(
        self, from_offset: int, below_offset: int, end_offset: int, size_max: int
    ) -> SegmentGroup | None:
        """Returns the next group that may become one segment, or None; its segments are held until `release`.

        The group's segments begin in `from_offset` to `below_offset` and end at or below `end_offset`.
        """
        numbers = [
            number
            for number, view in enumerate(self.sealed())
            if from_offset <= view.base_offset < below_offset and view.end_offset <= end_offset
        ]
        if not numbers:
            return None
        numbers = numbers[: group_count([self._view(number) for number in numbers], size_max)]
        segments = tuple(self._segments[number] for number in numbers)
        group = SegmentGroup(
            segments=segments,
            sources=tuple(self._source(number) for number in numbers),
            aborted=tuple(entry for segment in segments for entry in segment.aborted.all()),
            modified_ms=segments[-1].records.last_append_ms(),
        )
        for segment in segments:
            segment.held = True
        return group

    def release(self, group: SegmentGroup) -> None:
        for segment in group.segments:
            segment.held = False

    # ---- putting one segment in the place of several -----------------------------------------------------------------

    def replace(self, group: SegmentGroup, target: CleanedSegment) -> Segment:
        """Reads the committed target from now on, by the file that wrote it."""
        new = Segment(
            self._disk,
            self._files,
            self._directory,
            target.base_offset,
            target.size_bytes,
            index_interval_bytes=group.segments[0].index.interval_bytes,
        )
        new.reader.checked.all()
        new.records.appended_ms = group.modified_ms
        new.first_append_ms = group.segments[0].first_append_ms
        new.pin(target.file, target.index)
        new.held = (
            True  # until its files have its names: a deletion would miss them, and a crash bring them back
        )
        for entry in target.aborted:
            new.aborted.note(entry)
        self._segments.replace(group.segments, new)
        self._unsettled = new, target, [source.base_offset for source in group.sources]
        self._forget(group.segments)
        self._on_replaced()
        return new

    def settle(self, segment: Segment, target: CleanedSegment) -> None:
        """Notes that the target's files have their own names: it is a segment like any other."""
        self._unsettled = None
        self._forget((segment,))
        segment.unpin()
        segment.held = False
        sum_ = segment.aborted.sum
        segment.forget_aborted()
        segment.aborted.found(len(target.aborted) * ENTRY.size, sum_)
        target.close()

    def _forget(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            for kind in _FILE_KINDS:
                self._files.forget(segment.path(kind))
