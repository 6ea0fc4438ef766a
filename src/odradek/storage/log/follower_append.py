"""Batches as a leader's log has them: which of them may follow a log's end, and in what portions they are written. Pure.

A follower changes nothing about a batch, not its offsets, its epoch or its times. It asks only whether the batch can come next,
and refuses no producer: what the leader accepted is a fact. Offsets may be missing between batches, where compaction took them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from odradek.model.errors import ErrorCode, KafkaError
from odradek.records import BatchHeader, read_control
from odradek.storage.log.active_segment import Batches
from odradek.storage.producers.producer_state import Marker
from odradek.storage.segment.sparse_index import RELATIVE_OFFSET_MAX

_BATCHES_MAX: Final = 1000
"""That one system call writes: the kernel takes 1024 pieces."""
_MAGIC: Final = 2


class SegmentWrite(NamedTuple):
    """Batches that one write puts into one segment."""

    batches: Batches
    markers: dict[int, Marker]
    """The ends of transactions among them, by their offset."""
    size_bytes: int

    @property
    def last_offset(self) -> int:
        return self.batches[-1][0].last_offset


def check_fetched(batches: Batches, *, end_offset: int, latest_epoch: int) -> dict[int, Marker]:
    """Returns the markers among the batches; `end_offset` and `latest_epoch` are of the log that they are for.

    CORRUPT_MESSAGE for batches that no log can hold in this order. OFFSET_OUT_OF_RANGE when they begin below the log's end: it
    must be truncated first.
    """
    markers: dict[int, Marker] = {}
    next_offset, epoch = end_offset, latest_epoch
    for number, (header, batch) in enumerate(batches):
        _check_shape(header, batch)
        if header.base_offset < next_offset:
            if number:
                raise _corrupt(header, f"follows offset {next_offset - 1}")
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"a batch that begins with offset {header.base_offset} was fetched for a log that ends at {end_offset}",
            )
        if header.partition_leader_epoch < epoch:
            raise _corrupt(header, f"is of epoch {header.partition_leader_epoch} and follows epoch {epoch}")
        if header.last_offset - next_offset > RELATIVE_OFFSET_MAX:
            raise _corrupt(header, f"is more than {RELATIVE_OFFSET_MAX} after offset {next_offset}")
        if header.is_control and (marker := _marker(header, batch)) is not None:
            markers[header.base_offset] = marker
        next_offset, epoch = header.next_offset, header.partition_leader_epoch
    return markers


def _check_shape(header: BatchHeader, batch: memoryview) -> None:
    if header.magic != _MAGIC or header.size_bytes != len(batch):
        raise _corrupt(
            header, f"has magic {header.magic} and claims {header.size_bytes} of {len(batch)} bytes"
        )
    if header.base_offset < 0 or header.last_offset_delta < 0:
        raise _corrupt(header, f"ends with offset {header.last_offset}")


def _corrupt(header: BatchHeader, problem: str) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"a fetched batch that begins with offset {header.base_offset} {problem}"
    )


def _marker(header: BatchHeader, batch: memoryview) -> Marker | None:
    """Returns None for a control batch that ends no transaction, also because a compaction took its record."""
    if header.producer_id < 0 or header.record_count == 0:
        return None
    try:
        return Marker.of_batch(header, read_control(batch))
    except KafkaError as error:
        raise _corrupt(header, f"is no marker: {error.message}") from error


def portions(
    batches: Batches, markers: dict[int, Marker], *, end_offset: int, segment_bytes: int
) -> Iterator[SegmentWrite]:
    """Yields the batches in as few writes as segments allow; a batch that is larger than a segment goes alone."""
    first, size_bytes, start_offset = 0, 0, end_offset
    for number, (header, batch) in enumerate(batches):
        is_full = size_bytes + len(batch) > segment_bytes or number - first >= _BATCHES_MAX
        if number > first and (is_full or header.last_offset - start_offset > RELATIVE_OFFSET_MAX):
            yield _portion(batches[first:number], markers, size_bytes)
            start_offset = batches[number - 1][0].next_offset
            first, size_bytes = number, 0
        size_bytes += len(batch)
    if first < len(batches):
        yield _portion(batches[first:], markers, size_bytes)


def _portion(
    batches: Sequence[tuple[BatchHeader, memoryview]], markers: dict[int, Marker], size: int
) -> SegmentWrite:
    own = (
        {h.base_offset: markers[h.base_offset] for h, _ in batches if h.base_offset in markers}
        if markers
        else {}
    )
    return SegmentWrite(batches, own, size)
