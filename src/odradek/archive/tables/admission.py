"""May a batch be committed? The one decision that makes an archive exact: pure, on offsets alone.

A batch holds whole ranges of offsets. A range continues the archive where the archive ends in its partition; any other range
would double records or leave a gap. A batch that was committed before a crash is recognised, and not committed again.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.archive.store.values import ArchiveError, ArchiveState, NewBatch
from odradek.spark.reading.offsets import OffsetRange


def is_new(batch: NewBatch, state: ArchiveState, *, leaving_gaps: bool = False) -> bool:
    """Tells whether the batch must be committed; False when it is in the archive already.

    ArchiveError when it has read another topic than the archive has under the same name, when it would double records, or leave
    a gap (unless `leaving_gaps`: the topic lost records before they were archived, and the user knows), or when its files hold
    what it did not read.
    """
    state.check_topics(batch.topic_ids)
    last = state.batches.get((batch.id.sink, batch.id.query))
    ranges = [span for span in batch.ranges if span.size > 0]
    positions = state.positions
    beyond = [span for span in ranges if span.end > positions.get(span.partition, -1)]
    if last is not None and last >= batch.id.batch:
        _check_same_cut(batch, beyond)
        return False
    _check_files(batch)
    if not beyond:
        return False
    for span in ranges:
        _check_continues(span, positions.get(span.partition), leaving_gaps=leaving_gaps)
    return True


def gaps_before(batch: NewBatch, state: ArchiveState) -> list[OffsetRange]:
    """Returns the offsets between the archive's ends and the batch's beginnings, that no row will have."""
    positions = state.positions
    return [
        OffsetRange(partition=span.partition, start=positions[span.partition], end=span.start)
        for span in batch.ranges
        if span.size > 0 and positions.get(span.partition, span.start) < span.start
    ]


def _check_same_cut(batch: NewBatch, beyond: Sequence[OffsetRange]) -> None:
    """Raises ArchiveError where a batch's number comes again with other offsets: those that the archive lacks would be lost."""
    if beyond:
        raise ArchiveError(
            f"batch {batch.id.batch} of sink {batch.id.sink} is in the archive, but not up to offset {beyond[0].end - 1} of"
            f" {beyond[0].partition}, which it has read now: the query's checkpoint was changed. Start the query at the"
            " archive's offsets, with a fresh checkpoint (`odradek archive run` does so)"
        )


def _check_continues(extent: OffsetRange, position: int | None, *, leaving_gaps: bool) -> None:
    if position is None or extent.start == position or (leaving_gaps and extent.start > position):
        return
    read = f"the batch has read offsets {extent.start} to {extent.end - 1} of {extent.partition}"
    if extent.start < position:
        raise ArchiveError(
            f"{read}, but the archive has everything below {position}: they would be there twice. Start the query at the"
            " archive's offsets, with a fresh checkpoint (`odradek archive run` does so)"
        )
    raise ArchiveError(
        f"{read}, but the archive ends at {position}: offsets {position} to {extent.start - 1} would be missing. Start the"
        " query at the archive's offsets, with a fresh checkpoint (`odradek archive run` does so), or set leaveGaps=true if the"
        " topic has lost them"
    )


def _check_files(batch: NewBatch) -> None:
    """Raises ArchiveError for a file with a row that the batch has not read: such a row would not be missed, nor noticed,
    later."""
    read = {span.partition: span for span in batch.ranges}
    for file in batch.files:
        for rows in file.ranges:
            extent = read.get(rows.partition)
            if extent is None or rows.start < extent.start or rows.end > extent.end:
                raise ArchiveError(
                    f"{file.path} holds offsets {rows.start} to {rows.end - 1} of {rows.partition}, which the batch has not"
                    ' read: an archive is written from format("odradek"), with the columns topic, partition and offset as'
                    " they are there"
                )
