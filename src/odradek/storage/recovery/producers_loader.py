"""The producers of a log that is being opened: from the newest good snapshot, and the batches after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.records import BatchHeader
from odradek.storage.files import checkpoints, naming
from odradek.storage.files.checkpoints import BadCheckpointError
from odradek.storage.producers.producer_state import Producers
from odradek.storage.producers.snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.loaded_segments import LoadedSegments
from odradek.storage.recovery.replay import keep_transaction_index, replay_batch, replay_log
from odradek.storage.recovery.segment_scan import OnBatch
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.sparse_index import OFFSET_MAX


class ProducersLoader:
    """Loads the producers; producers of segments that retention removed are only in snapshots.

    After a crash `follow` comes first, so that the batches that recovery reads need not be read again. `load` gives the result.
    """

    def __init__(self, context: LoadContext, segments: LoadedSegments) -> None:
        self._context = context
        self._segments = segments
        self.transaction_sums: dict[int, int] | None = {}
        """The file's sums of the transaction indexes; None when it cannot be read, so that all of them are in doubt."""
        self.snapshot_offset = 0
        """The offset of the newest snapshot; 0 without any."""
        self._removed: dict[int, None] = {}
        """Offsets of removed snapshots."""
        self._followed: list[tuple[int, Producers]] = []
        """States that get the batches that recovery reads, each from an offset on; the newest first. The last one begins
        before that, and builds the transaction indexes."""

    # ---- what recovery reads -----------------------------------------------------------------------------------------

    def follow(self, names: Sequence[str], first: int) -> None:
        """Prepares for recovery, which will read all segments from the one with this number on, and show their batches.

        LostRecordsError for a damaged segment in front of them.
        """
        segments = self._segments
        self.transaction_sums = self._load_sums(names)
        if self._first_doubtful(segments[:first]) < OFFSET_MAX:
            return  # indexes in front of them must be made again, too
        base_offset = segments[first].base_offset
        followed = self._load_snapshots(names, base_offset, OFFSET_MAX)
        if not followed or followed[-1][0] > base_offset:
            followed.append((segments.base_offset, Producers()))
        offset, producers = followed[-1]
        if first > 0:
            self._replay(segments[:first], base_offset, offset, producers, index_from=OFFSET_MAX)
        self._followed = followed

    def batches_of(self, segment: Segment) -> OnBatch | None:
        """Returns the callback for a segment that recovery reads, which raises BrokenChain for a bad marker; None when not
        needed."""
        segment.forget_aborted()
        if not self._followed:
            return None
        (_, indexed), *newer = reversed(self._followed)
        now_ms, note = self._context.now_ms, segment.aborted.note

        def replay(header: BatchHeader, batch: memoryview, position: int) -> None:
            replay_batch(indexed, header, batch, position, now_ms, note)
            for offset, producers in newer:
                if header.next_offset > offset:
                    replay_batch(producers, header, batch, position, now_ms)

        return replay

    # ---- the result --------------------------------------------------------------------------------------------------

    def load(self, names: Sequence[str]) -> Producers:
        """Loads the producers, and rebuilds the transaction indexes of scanned segments, which takes all of their batches.

        LostRecordsError for a damaged segment.
        """
        segments = self._segments
        if self._followed and self._followed[0][0] <= segments.end_offset:
            return self._load_followed(names)
        self.transaction_sums = self._load_sums(names)
        unscanned = [segment for segment in segments if segment not in segments.scanned]
        scanned = min(
            segments.scanned[0].base_offset if segments.scanned else OFFSET_MAX,
            self._first_doubtful(unscanned),
        )
        is_remade = scanned < OFFSET_MAX
        loaded = self._load_snapshots(names, scanned, segments.end_offset)
        if loaded:
            self.snapshot_offset = loaded[0][0]
        if not loaded or loaded[-1][0] > scanned:
            loaded.append((segments.base_offset, Producers()))
        if len(loaded) > 1:
            self._replay(segments, segments.end_offset, *loaded[-1], index_from=scanned)
            scanned = OFFSET_MAX
        self._replay(segments, segments.end_offset, *loaded[0], index_from=scanned)
        if is_remade:
            self._context.disk.sync_directory(self._context.directory)
        return loaded[0][1]

    def _load_followed(self, names: Sequence[str]) -> Producers:
        offset, producers = self._followed[0]
        producers.transactions.forget_decided()
        if naming.offset_file(offset, naming.SNAPSHOT) in names:
            self.snapshot_offset = offset
        for segment in self._segments.scanned:
            keep_transaction_index(self._context.disk, segment)
        self._context.disk.sync_directory(self._context.directory)
        return producers

    def _load_sums(self, names: Sequence[str]) -> dict[int, int] | None:
        if naming.TRANSACTION_SUMS not in names:
            return {}
        path = self._context.path(naming.TRANSACTION_SUMS)
        try:
            return checkpoints.parse_transaction_sums(self._context.read_if_there(path))
        except BadCheckpointError as error:
            log.warning("transaction_sums_ignored", path=path, reason=str(error))
            return None

    def _first_doubtful(self, segments: Iterable[Segment]) -> int:
        """Returns the first segment whose transaction index differs from its written sum. Kafka writes no sums."""
        sums = self.transaction_sums
        for segment in segments:
            if sums is None or sums.get(segment.base_offset, segment.aborted.sum) != segment.aborted.sum:
                log.warning("transaction_index_doubted", path=segment.path(naming.TRANSACTION_INDEX))
                return segment.base_offset
        return OFFSET_MAX

    def _load_snapshots(
        self, names: Sequence[str], scanned: int, end_offset: int
    ) -> list[tuple[int, Producers]]:
        """Returns the newest good snapshot of the log, and, if that is after the offset `scanned`, the newest
        that is not. Others may go."""
        disk = self._context.disk
        bases = {segment.base_offset for segment in self._segments}
        offsets = [
            file.offset
            for name in names
            if (file := naming.parse_offset_file(name)) and file.kind == naming.SNAPSHOT
            if file.offset not in self._removed
        ]
        loaded: list[tuple[int, Producers]] = []
        for offset in sorted(offsets, reverse=True):
            path = self._context.path(naming.offset_file(offset, naming.SNAPSHOT))
            is_wanted = not loaded or loaded[-1][0] > scanned >= offset
            if offset > end_offset or not (is_wanted or offset in bases):
                self._remove(offset, path)
            elif is_wanted:
                try:
                    loaded.append((offset, Producers(decode_snapshot(disk.read(path), self._context.now_ms))))
                except BadSnapshotError as error:
                    log.warning("snapshot_ignored", path=path, reason=str(error))
                    self._remove(offset, path)
        return loaded

    def _remove(self, offset: int, path: str) -> None:
        self._context.disk.remove(path)
        self._removed[offset] = None

    def _replay(
        self,
        segments: Sequence[Segment],
        end_offset: int,
        offset: int,
        producers: Producers,
        *,
        index_from: int,
    ) -> None:
        try:
            replay_log(
                self._context.disk,
                producers,
                segments,
                end_offset=end_offset,
                from_offset=offset,
                index_from=index_from,
                now_ms=self._context.now_ms,
            )
        except BrokenChain as damage:
            raise self._context.lost(str(damage)) from None
