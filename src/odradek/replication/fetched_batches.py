"""Checks fetched batches before a follower appends them: one replica's damage must not spread to the others.

A header's first fields are outside of its CRC. That its offsets fit is checked by the log, which knows where it ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.model.errors import KafkaError
from odradek.records import BatchHeader, check_crc, read_header
from odradek.records.faults import corrupt
from odradek.runtime.ports import Buffer

Batches = list[tuple[BatchHeader, memoryview]]


def checked(records: Iterable[Buffer | None]) -> list[Batches | KafkaError]:
    """Returns, for each answer, its sound batches or its error. Runs on any thread."""
    results: list[Batches | KafkaError] = []
    for record in records:
        try:
            results.append(_sound_batches(memoryview(record).cast("B")) if record else [])
        except KafkaError as error:
            results.append(error.as_outcome())
    return results


def _sound_batches(view: memoryview) -> Batches:
    """Returns the batches before the first one that is cut short or damaged. Raises CORRUPT_MESSAGE when that is the very
    first, which leaders send whole."""
    batches: Batches = []
    position, size_bytes = 0, len(view)
    try:
        while position < size_bytes:
            header = read_header(view, position)
            end = position + header.size_bytes
            if end > size_bytes:
                raise corrupt(
                    f"a batch of {header.size_bytes} bytes is cut short after {size_bytes - position}"
                )
            batch = view[position:end]
            check_crc(batch)
            batches.append((header, batch))
            position = end
    except KafkaError:
        if not batches:
            raise
    return batches


def check_epochs(batches: Batches, leader_epoch: int) -> None:
    """Raises CORRUPT_MESSAGE when one is newer than the leader that sent them."""
    newest = batches[-1][0].partition_leader_epoch
    if newest > leader_epoch:
        raise corrupt(f"a batch of epoch {newest} was fetched from a leader of epoch {leader_epoch}")
