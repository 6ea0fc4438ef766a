"""Recovery after a crash (decision 0007): what is not known to be durable and sound is scanned, cut and synced."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.storage.files import naming
from odradek.storage.files.damage import DamagedBatchError
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.loaded_segments import LoadedSegments
from odradek.storage.recovery.producers_loader import ProducersLoader
from odradek.storage.recovery.segment_scan import ScannedSegment, cut, scan_file, set_aside
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.index_checks import BuiltIndex
from odradek.storage.segment.segment import Segment


class AfterCrash:
    """Recovers a log after a crash: reads everything from the recovery point on, and trusts none of it."""

    def __init__(self, context: LoadContext, segments: LoadedSegments, producers: ProducersLoader) -> None:
        """`producers` are shown each batch that stays."""
        self._context = context
        self._segments = segments
        self._producers = producers
        self.cut_aside = False
        """Good batches came after a bad one, and were put in a side file."""

    def recover(self, names: Sequence[str]) -> None:
        """Scans from the recovery point on, cuts at the first bad batch, makes everything durable."""
        first = self._first_to_scan()
        self._producers.follow(names, first)
        last, scanned = self._scan_from(first)
        segments = self._segments
        if scanned.problem is not None:
            problem = f"segment {segments[last].base_offset}: {scanned.problem}"
            self._drop_from(last + 1, scanned.next_offset, problem)
            self.cut_aside |= cut(self._context.disk, segments[last], scanned)
        if last > 0 and scanned.last_epoch < 0:
            before = segments[last - 1].search.last_batch()
            segments.last_epoch = max(segments.last_epoch, before.leader_epoch if before is not None else -1)
        self._keep_active(scanned)
        segments.scanned = segments[first:]
        for path in self._context.opening.parents:
            self._context.disk.sync_directory(path)  # the log's own follows with its producers
        log.debug(
            "log_scanned",
            partition=self._context.opening.topic_partition,
            recovery_point=self._context.opening.recovery_point,
            end_offset=segments.end_offset,
            segment_count=len(segments.scanned),
        )

    def _first_to_scan(self) -> int:
        """Returns the number of the segment that holds the recovery point; of one before it that tells whether it follows
        on."""
        segments, point = self._segments, self._context.opening.recovery_point
        number = max((n for n, segment in enumerate(segments) if segment.base_offset <= point), default=0)
        while number > 0 and not segments[number].size_bytes:
            number -= 1  # does the one before it end where it begins?
        first = segments[number]
        segments.drop_empty(segments[:number])
        self._check_follow_on(segments.index(first))
        return segments.index(first)

    def _scan_from(self, number: int) -> tuple[int, ScannedSegment]:
        """Scans segments as long as they are good and follow each other, and makes all but the last of them durable.

        The number of the last one that stays, and what its scan found.
        """
        segments = self._segments
        scanned = self._scan(segments[number])
        while scanned.problem is None and number + 1 < len(segments):
            following, expected = segments[number + 1], scanned.next_offset
            if following.base_offset < expected:
                if following.size_bytes:
                    problem = f"segment {following.base_offset} overlaps {expected - 1}"
                    self._drop_from(number + 1, expected, problem)
                else:
                    segments.drop_empty([following])
                continue
            if following.base_offset > max(expected, self._context.opening.cleaned_offset):
                problem = f"offsets {expected} to {following.base_offset - 1} are missing"
                self._drop_from(number + 1, expected, problem)
                break
            self._keep_sealed(segments[number], scanned)
            number += 1
            scanned = self._scan(following)
        return number, scanned

    def _check_follow_on(self, number: int) -> None:
        """Checks that no segment is missing among those sealed since the checkpoint, up to the one with this number."""
        segments, opening = self._segments, self._context.opening
        while number > 0 and segments[number].base_offset > opening.checkpointed_offset:
            following, number = segments[number].base_offset, number - 1
            try:
                last = segments[number].search.last_batch()
            except DamagedBatchError:  # its readers will meet it
                continue
            if last is not None and max(last.last_offset + 1, opening.cleaned_offset) < following:
                raise self._context.lost(f"offsets {last.last_offset + 1} to {following - 1} are missing")

    def _scan(self, segment: Segment) -> ScannedSegment:
        file = self._context.disk.open(segment.path(naming.LOG))
        try:
            return scan_file(
                file,
                segment.base_offset,
                segment.size_bytes,
                index_interval_bytes=segment.index.interval_bytes,
                recovery_point=self._context.opening.recovery_point,
                on_batch=self._producers.batches_of(segment),
            )
        except BrokenChain as damage:
            raise self._context.lost(f"in segment {segment.base_offset}: {damage}") from None
        finally:
            file.close()

    def _drop_from(self, number: int, end_offset: int, problem: str) -> None:
        """Removes segments from the log durably, the newest first, before the one before them is cut."""
        if end_offset < self._context.opening.durable_offset:
            raise self._context.lost(problem)
        dropped = self._segments[number:]
        for segment in reversed(dropped):
            self.cut_aside |= set_aside(self._context.disk, segment)
        if dropped:
            self._context.disk.sync_directory(self._context.directory)
            self._segments.keep_first(number)

    def _keep_sealed(self, segment: Segment, scanned: ScannedSegment) -> None:
        """Syncs a scanned segment that others follow: what was read may have been in the page cache only."""
        disk = self._context.disk
        self._segments.last_epoch = scanned.last_epoch
        segment.reader.checked.all()
        scanned.index.seal()
        segment.index.replace_files(scanned.index)
        for kind in (naming.LOG, naming.OFFSET_INDEX, naming.TIME_INDEX):
            file = disk.open(segment.path(kind))
            try:
                file.sync()
            finally:
                file.close()

    def _keep_active(self, scanned: ScannedSegment) -> None:
        """Syncs the last scanned segment and makes it the active one."""
        active = self._segments.active
        active.reader.checked.all()
        active.records.open_writer().log_file.sync()
        self._segments.activate(BuiltIndex(scanned.index, scanned.next_offset, scanned.last_epoch))
