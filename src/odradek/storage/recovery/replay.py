"""Rebuilds producers' state and aborted transactions from batches that are in the log already.

This is how a log gets to know its producers when it is opened, from a snapshot and the batches after it, and
how a transaction index is rebuilt: which transactions a marker ended, and what was open then, follows from
the batches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.model.errors import KafkaError
from odradek.records import BatchHeader, read_control
from odradek.records.batch import TRANSACTIONAL_BIT
from odradek.runtime.ports import Buffer, Disk, DiskFile
from odradek.storage.files import naming
from odradek.storage.producers.producer_state import BATCHES_KEPT, Marker, Producers
from odradek.storage.producers.snapshot import BadSnapshotError, decode_snapshot
from odradek.storage.segment.batch_walk import BrokenChain, walk_headers
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.transaction_index import AbortedTransaction
from odradek.telemetry import events

log = events.get("storage")


def replay_log(
    disk: Disk,
    producers: Producers,
    segments: Sequence[Segment],
    *,
    end_offset: int,
    from_offset: int,
    index_from: int,
    now_ms: int,
) -> None:
    """Applies all batches from `from_offset` on, and builds the transaction indexes of segments that begin at
    `index_from` or after it again, durably except for their names. Raises BrokenChain for a damaged segment.
    """
    bounds = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, following in zip(segments, bounds, strict=True):
        is_indexed = segment.base_offset >= index_from
        if is_indexed:
            segment.forget_aborted()
        if following > from_offset and segment.size_bytes:
            noted = segment.aborted.note if is_indexed else None
            try:
                replay_segment(producers, segment, from_offset, now_ms, noted)
            except BrokenChain as damage:
                raise BrokenChain(
                    damage.position, f"in segment {segment.base_offset}: {damage.reason}"
                ) from None
        if is_indexed:
            keep_transaction_index(disk, segment)
    producers.transactions.forget_decided()


def keep_transaction_index(disk: Disk, segment: Segment) -> None:
    """Writes the transaction index that the batches show, durably: a later clean start trusts the file."""
    if not segment.aborted:
        path = segment.path(naming.TRANSACTION_INDEX)
        if disk.exists(path):
            disk.remove(path)
        return
    try:
        segment.aborted.write()
    finally:
        file = segment.aborted.file
        if file is not None and segment.writer is not None:
            segment.writer.transaction_file = file
    if file is not None:
        file.sync()
        if segment.writer is None:
            segment.aborted.detach()
            file.close()


def replay_segment(
    producers: Producers,
    segment: Segment,
    from_offset: int,
    now_ms: int,
    aborted: Callable[[AbortedTransaction], None] | None = None,
) -> None:
    """Applies the segment's batches from the one with `from_offset` on. Raises BrokenChain for a damaged segment."""
    start = segment.search.locate(from_offset)
    replay_file(producers, segment.records.log_file, segment.size_bytes, now_ms, start=start, aborted=aborted)


def replay_file(
    producers: Producers,
    file: DiskFile,
    size_bytes: int,
    now_ms: int,
    *,
    start: int = 0,
    from_offset: int = 0,
    aborted: Callable[[AbortedTransaction], None] | None = None,
) -> None:
    """Does the same for an open file: the batches from byte `start` on that are not below `from_offset`."""
    for position, header in walk_headers(file, start, size_bytes):
        if header.next_offset > from_offset:
            batch = file.pread(header.size_bytes, position) if header.is_control else b""
            replay_batch(producers, header, batch, position, now_ms, aborted)


def replay_batch(
    producers: Producers,
    header: BatchHeader,
    batch: Buffer,
    position: int,
    now_ms: int,
    aborted: Callable[[AbortedTransaction], None] | None = None,
) -> None:
    """Does the same for one batch, of which only markers are decoded. Raises BrokenChain for one that is none."""
    if not header.is_control:
        producers.replay(header, now_ms)
        return
    marker = _marker(header, batch, position)
    ended = producers.mark(marker, header.base_offset, now_ms) if marker is not None else None
    if ended is not None and not ended.is_commit and aborted is not None:
        aborted(AbortedTransaction.of(ended))


def deciding(
    produced: Sequence[tuple[BatchHeader, int, int]],
) -> Sequence[tuple[BatchHeader, int, int]]:
    """Returns the data batches of a run that suffice for the producers' final state, in their order.

    A state knows the first batch of an open transaction, which no marker ends within a run, and the last five batches of one
    epoch. So the last six of each producer decide: five of one epoch, or fewer after one of another epoch.
    """
    counts: dict[int, int] = {}
    decide: list[tuple[BatchHeader, int, int]] = []
    began: dict[int, tuple[BatchHeader, int, int]] = {}
    for entry in reversed(produced):
        header = entry[0]
        producer_id = header.producer_id
        count = counts[producer_id] = counts.get(producer_id, 0) + 1
        if count <= BATCHES_KEPT + 1:
            decide.append(entry)
        elif header.attributes & TRANSACTIONAL_BIT:
            began[producer_id] = entry
    decide += began.values()
    decide.sort(key=_beginning)
    return decide


def _beginning(entry: tuple[BatchHeader, int, int]) -> int:
    return entry[1]


def newest_snapshot(disk: Disk, directory: str, up_to: int, now_ms: int) -> tuple[int, Producers]:
    """Returns the newest sound snapshot that is of nothing above `up_to`, and its offset; (0, none) without any."""
    files = map(naming.parse_offset_file, disk.list_directory(directory))
    offsets = [file.offset for file in files if file and file.kind == naming.SNAPSHOT and not file.state]
    for offset in sorted(offsets, reverse=True):
        if offset <= up_to:
            path = naming.join(directory, naming.offset_file(offset, naming.SNAPSHOT))
            try:
                return offset, Producers(decode_snapshot(disk.read(path), now_ms))
            except BadSnapshotError as error:
                log.warning("snapshot_ignored", path=path, reason=str(error))
    return 0, Producers()


def _marker(header: BatchHeader, batch: Buffer, position: int) -> Marker | None:
    if header.producer_id < 0 or header.record_count == 0:  # a compaction took the record of an old marker
        return None
    try:
        return Marker.of_batch(header, read_control(batch))
    except KafkaError as error:
        raise BrokenChain(position, error.message) from error
