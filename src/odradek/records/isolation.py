"""What a reader at `read_committed` may see of fetched batches (KIP-98).

A fetch answer names the aborted transactions that touch it: a producer id and the offset at which that
producer's transaction began. From there on the producer's batches are void, until its ABORT marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.records.batch import BatchHeader
from odradek.records.control import ControlKind, read_control


def data_batches(
    batches: Iterable[tuple[BatchHeader, memoryview]], *, aborted: Iterable[tuple[int, int]] = ()
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches that carry records for the application, in order: no markers, nothing of an aborted
    transaction.

    `aborted`: (producer id, first offset) of each, as the fetch answer lists them, in any order.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    void: set[int] = set()
    for header, batch in batches:
        while waiting and waiting[-1][1] <= header.last_offset:
            void.add(waiting.pop()[0])
        if header.is_control:
            # A marker without its record: compaction took all of its transaction.
            is_marker = header.producer_id in void and header.record_count > 0
            if is_marker and read_control(batch).kind is ControlKind.ABORT:
                void.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in void):
            yield header, batch
