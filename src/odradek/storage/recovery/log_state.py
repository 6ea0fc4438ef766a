"""What belongs to a log besides its batches: epochs, where it begins, its topic, its producers."""

from __future__ import annotations

from uuid import UUID

from odradek.storage.directories import checkpoints, naming
from odradek.storage.directories.checkpoints import BadCheckpointError
from odradek.storage.log.leader_epochs import EpochHistory, EpochStart
from odradek.storage.producers.producer_state import Producers
from odradek.storage.producers.replay import replay_log
from odradek.storage.producers.snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.recovery.context import OpeningState, log
from odradek.storage.segment.batch_walk import BrokenChain
from odradek.storage.segment.sparse_index import OFFSET_MAX


class Contents(OpeningState):
    """From small files where they can be believed, else from the batches."""

    def _load_epochs(self, names: list[str]) -> tuple[EpochStart, ...]:
        """What the checkpoint says: nothing when it is missing or damaged."""
        if naming.LEADER_EPOCHS in names:
            try:
                entries = checkpoints.parse_epochs(
                    self._disk.read(naming.join(self._directory, naming.LEADER_EPOCHS))
                )
                self._epochs = EpochHistory(entries)
            except BadCheckpointError as error:
                log.warning("epochs_ignored", directory=self._directory, reason=str(error))
        return self._epochs.entries

    def _rebuild_epochs(self) -> None:
        """The log has a later epoch than the checkpoint: read them off all batches."""
        self._epochs = EpochHistory()
        next_offset = self._segments[0].base_offset
        for segment in self._segments:
            for mark in segment.records.marks():
                self._epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1

    def _find_first_epochs(self) -> None:
        """The log may begin earlier than it did when the checkpoint was written: a deletion that a crash undid."""
        entries = self._epochs.entries
        if not entries or self._segments[0].base_offset >= entries[0].start_offset:
            return
        self._epochs = EpochHistory()
        next_offset = self._segments[0].base_offset
        for segment in self._segments:
            if next_offset >= entries[0].start_offset:
                break
            for mark in segment.records.marks():
                if next_offset >= entries[0].start_offset:
                    break
                self._epochs.assign(mark.leader_epoch, next_offset)
                next_offset = mark.last_offset + 1
        for epoch, start_offset in entries:
            self._epochs.assign(epoch, start_offset)

    def _trim_epochs(self, start_offset: int) -> None:
        # One that begins at the very end is of a leader that had written nothing yet.
        self._epochs.truncate_from_end(self._end_offset + 1)
        self._epochs.truncate_from_start(start_offset)

    def _load_start_offset(self, names: list[str]) -> int:
        """What the log's own directory says of it: the checkpoint may be lost, or older. 0 when that is nothing.

        If it cannot be read, the checkpoint is believed after a clean close alone. If it is not there, most likely nothing was
        ever deleted; but if the checkpoint is lost, too, nobody knows.
        """
        if naming.START_OFFSET not in names:
            self._doubt_start(self._opening.start_is_checkpointed)
            return 0
        offset = self._moved_start()
        if offset is None:
            self._doubt_start(self._opening.start_is_checkpointed and self._opening.clean)
            return 0
        return offset if offset <= self._end_offset else 0

    def _moved_start(self) -> int | None:
        """What the file in the log's own directory says; None when it cannot be believed."""
        path = naming.join(self._directory, naming.START_OFFSET)
        try:
            return checkpoints.parse_start_offset(self._read_if_there(path))
        except BadCheckpointError as error:
            log.warning("start_offset_ignored", path=path, reason=str(error))
            return None

    def _doubt_start(self, is_known: bool) -> None:
        if self._opening.repairable and not is_known:
            log.warning("log_start_doubted", partition=self._opening.topic_partition)
            self._start_is_doubted = True

    def _load_topic_id(self, names: list[str]) -> UUID | None:
        if naming.PARTITION_METADATA not in names:
            return None
        path = naming.join(self._directory, naming.PARTITION_METADATA)
        try:
            return checkpoints.parse_partition_metadata(self._disk.read(path))
        except BadCheckpointError as error:
            log.warning("topic_id_unreadable", path=path, reason=str(error))
            return None

    def _load_producers(self, names: list[str]) -> Producers:
        """From the newest good snapshot, and the batches behind it: what retention took is nowhere else.

        The transaction indexes of segments that were scanned are made again, for which all of their batches are gone through.
        """
        self._sums = self._load_sums(names)
        scanned = min(
            self._recovered[0].base_offset if self._recovered else OFFSET_MAX, self._first_doubtful()
        )
        is_remade = scanned < OFFSET_MAX
        loaded = self._load_snapshots(names, scanned)
        if loaded:
            self._snapshot_offset = loaded[0][0]
        if not loaded or loaded[-1][0] > scanned:
            loaded.append((self._segments[0].base_offset, Producers()))
        if len(loaded) > 1:
            self._replay(*loaded[-1], index_from=scanned)
            scanned = OFFSET_MAX
        self._replay(*loaded[0], index_from=scanned)
        if is_remade:
            self._disk.sync_directory(self._directory)
        return loaded[0][1]

    def _load_sums(self, names: list[str]) -> dict[int, int] | None:
        """Of the transaction indexes; None when the file cannot be read, so that all of them are in doubt."""
        if naming.TRANSACTION_SUMS not in names:
            return {}
        path = naming.join(self._directory, naming.TRANSACTION_SUMS)
        try:
            return checkpoints.parse_transaction_sums(self._read_if_there(path))
        except BadCheckpointError as error:
            log.warning("transaction_sums_ignored", path=path, reason=str(error))
            return None

    def _first_doubtful(self) -> int:
        """The first segment whose transaction index is not what was written down of it. Kafka writes nothing down."""
        for segment in self._segments:
            if segment in self._recovered:
                break
            if (
                self._sums is None
                or self._sums.get(segment.base_offset, segment.aborted.sum) != segment.aborted.sum
            ):
                log.warning("transaction_index_doubted", path=segment.path(naming.TRANSACTION_INDEX))
                return segment.base_offset
        return OFFSET_MAX

    def _load_snapshots(self, names: list[str], scanned: int) -> list[tuple[int, Producers]]:
        """The newest good one, and, if that is behind the offset `scanned`, the newest that is not. Others may go."""
        bases = {segment.base_offset for segment in self._segments}
        offsets = [
            file.offset
            for name in names
            if (file := naming.parse_offset_file(name)) and file.kind == naming.SNAPSHOT
        ]
        loaded: list[tuple[int, Producers]] = []
        for offset in sorted(offsets, reverse=True):
            path = naming.join(self._directory, naming.offset_file(offset, naming.SNAPSHOT))
            is_wanted = not loaded or loaded[-1][0] > scanned >= offset
            if offset > self._end_offset or not (is_wanted or offset in bases):
                self._disk.remove(path)
            elif is_wanted:
                try:
                    loaded.append((offset, Producers(decode_snapshot(self._disk.read(path), self._now_ms))))
                except BadSnapshotError as error:
                    log.warning("snapshot_ignored", path=path, reason=str(error))
                    self._disk.remove(path)
        return loaded

    def _replay(self, offset: int, producers: Producers, *, index_from: int) -> None:
        try:
            replay_log(
                self._disk,
                producers,
                self._segments,
                end_offset=self._end_offset,
                from_offset=offset,
                index_from=index_from,
                now_ms=self._now_ms,
            )
        except BrokenChain as damage:
            raise self._lost(str(damage)) from None
