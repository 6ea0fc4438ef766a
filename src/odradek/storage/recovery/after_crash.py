"""After a crash: what is not known to be durable and sound is scanned, cut and synced."""

from __future__ import annotations

from odradek.storage.directories import naming
from odradek.storage.log.damage import DamagedBatchError
from odradek.storage.recovery.context import OpeningState, log
from odradek.storage.recovery.segment_scan import ScannedSegment, cut, rewrite, scan_file, set_aside
from odradek.storage.segment.index_checks import BuiltIndex
from odradek.storage.segment.segment import Segment


class AfterCrash(OpeningState):
    """Recovery, decision 0007."""

    def _recover(self) -> None:
        """Scan from the recovery point on, cut at the first bad batch, make everything durable."""
        point = self._opening.recovery_point
        first = max(
            (n for n, segment in enumerate(self._segments) if segment.base_offset <= point), default=0
        )
        while first > 0 and not self._segments[first].size_bytes:
            first -= 1  # does the one before it end where it begins?
        segment = self._segments[first]
        self._drop_empty(self._segments[:first])
        self._check_follow_on(self._segments.index(segment))
        first = number = self._segments.index(segment)
        scanned = self._scan(segment)
        while scanned.problem is None and number + 1 < len(self._segments):
            following, expected = self._segments[number + 1], scanned.next_offset
            if following.base_offset < expected:
                if following.size_bytes:
                    self._drop_from(
                        number + 1, expected, f"segment {following.base_offset} overlaps {expected - 1}"
                    )
                else:
                    self._drop_empty([following])
                continue
            if following.base_offset > max(expected, self._opening.cleaned_offset):
                self._drop_from(
                    number + 1, expected, f"offsets {expected} to {following.base_offset - 1} are missing"
                )
                break
            self._keep_sealed(segment, scanned)
            number += 1
            segment, scanned = following, self._scan(following)
        if scanned.problem is not None:
            problem = f"segment {segment.base_offset}: {scanned.problem}"
            self._drop_from(number + 1, scanned.next_offset, problem)
            self._cut_aside |= cut(self._disk, segment, scanned)
        if number > 0 and scanned.last_epoch < 0:
            before = self._segments[number - 1].search.last_batch()
            self._last_epoch = max(self._last_epoch, before.leader_epoch if before is not None else -1)
        self._keep_active(segment, scanned)
        self._recovered = self._segments[first:]
        for path in self._opening.parents:
            self._disk.sync_directory(path)  # the log's own follows with its producers
        log.debug(
            "log_scanned",
            partition=self._opening.topic_partition,
            recovery_point=point,
            end_offset=self._end_offset,
            segment_count=number + 1 - first,
        )

    def _check_follow_on(self, number: int) -> None:
        """That no segment is missing among those sealed since the checkpoint, up to the one with this number."""
        while number > 0 and self._segments[number].base_offset > self._opening.checkpointed_offset:
            following, number = self._segments[number].base_offset, number - 1
            try:
                last = self._segments[number].search.last_batch()
            except DamagedBatchError:  # its readers will meet it
                continue
            if last is not None and max(last.last_offset + 1, self._opening.cleaned_offset) < following:
                raise self._lost(f"offsets {last.last_offset + 1} to {following - 1} are missing")

    def _scan(self, segment: Segment) -> ScannedSegment:
        file = self._disk.open(segment.path(naming.LOG), write=False)
        try:
            return scan_file(
                file,
                segment.base_offset,
                segment.size_bytes,
                index_interval_bytes=segment.index.interval_bytes,
            )
        finally:
            file.close()

    def _drop_from(self, number: int, end_offset: int, problem: str) -> None:
        """Take segments out of the log, the newest first, durably, before the one in front of them is cut."""
        if end_offset < self._opening.durable_offset:
            raise self._lost(problem)
        dropped = self._segments[number:]
        for segment in reversed(dropped):
            self._cut_aside |= set_aside(self._disk, segment)
        if dropped:
            self._disk.sync_directory(self._directory)
            del self._segments[number:]

    def _keep_sealed(self, segment: Segment, scanned: ScannedSegment) -> None:
        """Sync a scanned segment that others follow: what was read may have been in the page cache only."""
        self._last_epoch = scanned.last_epoch
        segment.reader.checked.all()
        scanned.index.seal()
        segment.index.replace_files(scanned.index)
        rewrite(self._disk, segment, scanned, self._opening.recovery_point)
        for kind in (naming.LOG, naming.OFFSET_INDEX, naming.TIME_INDEX):
            file = self._disk.open(segment.path(kind))
            try:
                file.sync()
            finally:
                file.close()

    def _keep_active(self, segment: Segment, scanned: ScannedSegment) -> None:
        """Sync the last scanned segment and make it the active one."""
        segment.reader.checked.all()
        rewrite(self._disk, segment, scanned, self._opening.recovery_point)
        writer = segment.records.open_writer()
        writer.log_file.sync()
        self._activate(segment, BuiltIndex(scanned.index, scanned.next_offset, scanned.last_epoch))
