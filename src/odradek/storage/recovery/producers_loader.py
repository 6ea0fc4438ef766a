"""The producers of a log that is being opened: from the newest good snapshot, and the batches behind it."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.storage.directories import checkpoints, naming
from odradek.storage.directories.checkpoints import BadCheckpointError
from odradek.storage.producers.producer_state import Producers
from odradek.storage.producers.replay import replay_log
from odradek.storage.producers.snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.recovery.context import LoadContext, log
from odradek.storage.recovery.found_segments import FoundSegments
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.sparse_index import OFFSET_MAX


class ProducersLoader:
    """What retention took is in snapshots alone."""

    def __init__(self, context: LoadContext, segments: FoundSegments) -> None:
        self._context = context
        self._segments = segments
        self.transaction_sums: dict[int, int] | None = {}
        """What the file says of the transaction indexes; None when that cannot be read, so that all of them are in doubt."""
        self.snapshot_offset = 0
        """Of the newest snapshot; 0 without any."""

    def load(self, names: Sequence[str]) -> Producers:
        """The transaction indexes of segments that were scanned are made again, which takes all of their batches.

        LostRecordsError for a damaged segment.
        """
        segments = self._segments
        self.transaction_sums = self._load_sums(names)
        scanned = min(
            segments.scanned[0].base_offset if segments.scanned else OFFSET_MAX, self._first_doubtful()
        )
        is_remade = scanned < OFFSET_MAX
        loaded = self._load_snapshots(names, scanned)
        if loaded:
            self.snapshot_offset = loaded[0][0]
        if not loaded or loaded[-1][0] > scanned:
            loaded.append((segments.base_offset, Producers()))
        if len(loaded) > 1:
            self._replay(*loaded[-1], index_from=scanned)
            scanned = OFFSET_MAX
        self._replay(*loaded[0], index_from=scanned)
        if is_remade:
            self._context.disk.sync_directory(self._context.directory)
        return loaded[0][1]

    def _load_sums(self, names: Sequence[str]) -> dict[int, int] | None:
        if naming.TRANSACTION_SUMS not in names:
            return {}
        path = self._context.path(naming.TRANSACTION_SUMS)
        try:
            return checkpoints.parse_transaction_sums(self._context.read_if_there(path))
        except BadCheckpointError as error:
            log.warning("transaction_sums_ignored", path=path, reason=str(error))
            return None

    def _first_doubtful(self) -> int:
        """The first segment whose transaction index is not what was written down of it. Kafka writes nothing down."""
        sums = self.transaction_sums
        for segment in self._segments:
            if segment in self._segments.scanned:
                break
            if sums is None or sums.get(segment.base_offset, segment.aborted.sum) != segment.aborted.sum:
                log.warning("transaction_index_doubted", path=segment.path(naming.TRANSACTION_INDEX))
                return segment.base_offset
        return OFFSET_MAX

    def _load_snapshots(self, names: Sequence[str], scanned: int) -> list[tuple[int, Producers]]:
        """The newest good one, and, if that is behind the offset `scanned`, the newest that is not. Others may go."""
        disk = self._context.disk
        bases = {segment.base_offset for segment in self._segments}
        offsets = [
            file.offset
            for name in names
            if (file := naming.parse_offset_file(name)) and file.kind == naming.SNAPSHOT
        ]
        loaded: list[tuple[int, Producers]] = []
        for offset in sorted(offsets, reverse=True):
            path = self._context.path(naming.offset_file(offset, naming.SNAPSHOT))
            is_wanted = not loaded or loaded[-1][0] > scanned >= offset
            if offset > self._segments.end_offset or not (is_wanted or offset in bases):
                disk.remove(path)
            elif is_wanted:
                try:
                    loaded.append((offset, Producers(decode_snapshot(disk.read(path), self._context.now_ms))))
                except BadSnapshotError as error:
                    log.warning("snapshot_ignored", path=path, reason=str(error))
                    disk.remove(path)
        return loaded

    def _replay(self, offset: int, producers: Producers, *, index_from: int) -> None:
        try:
            replay_log(
                self._context.disk,
                producers,
                self._segments,
                end_offset=self._segments.end_offset,
                from_offset=offset,
                index_from=index_from,
                now_ms=self._context.now_ms,
            )
        except BrokenChain as damage:
            raise self._context.lost(str(damage)) from None
