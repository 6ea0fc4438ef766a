"""One read for a member of a share group: records are read, acquired, and reduced to the acquired ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.broker.share.partitions import LivePartition
from odradek.groups.share.partition import AcknowledgedRange, AcquiredRange
from odradek.protocol.acknowledge_types import AcknowledgeType
from odradek.records import BatchHeader, data_batches, split_batches
from odradek.storage.files.at_hand import NotAtHand, ReadProgress

_ALL: Final = 1 << 62
Batches = Sequence[tuple[BatchHeader, memoryview]]


@dataclass(slots=True, kw_only=True)
class FetchLimits:
    """The remaining limits of an answer."""

    records: int
    by_batches: bool
    """Whether whole batches are returned rather than an exact number of records (KIP-1206)."""
    batch_size: int = 0
    """The count of records after which ranges are cut, where a batch of the log ends; 0: nowhere."""


class FetchedRange(NamedTuple):
    """The records that were read of a partition, before any is acquired."""

    live: LivePartition
    offset: int
    next_offset: int
    batches: Batches
    size_bytes: int


class AcquiredBatches(NamedTuple):
    records: bytes
    acquired: list[AcquiredRange]


def read_acquirable(
    live: LivePartition, limit_bytes: int, *, at_least_one: bool, beside: ReadProgress
) -> FetchedRange | None:
    """Reads from the first record that could be acquired on. Raises NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, and what
    else reading may raise; NotAtHand for what another thread should read first."""
    live.check_leads()
    live.follow_log_start()
    core, partition = live.core, live.partition
    if not core.has_room or (limit_bytes <= 0 and not at_least_one):
        return None
    offset = core.next_fetch_offset
    end_offset = partition.last_stable_offset if live.settings.committed_only else partition.high_watermark
    if offset >= end_offset:
        return None
    missing = partition.log.not_at_hand(offset, max(limit_bytes, 0), beside)
    if missing is not None:
        raise NotAtHand(missing)
    read = partition.log.read(offset, max(limit_bytes, 0), end_offset=end_offset, at_least_one=at_least_one)
    if read.next_offset <= offset:
        return None
    batches = split_batches(memoryview(read.records)) if read.records else []
    return FetchedRange(live, offset, read.next_offset, batches, len(read.records))


def acquire(seen: FetchedRange, member_id: str, room: FetchLimits, now_ms: int) -> AcquiredBatches | None:
    """Acquires as much of what was read as there is room for. Returns None when that is nothing."""
    live = seen.live
    last_offset, records_max = seen.next_offset - 1, room.records
    if room.by_batches:
        last_offset, records_max = _whole_batches(seen, room.records), _ALL
    ranges = live.core.acquire(member_id, seen.offset, last_offset, records_max=records_max, now_ms=now_ms)
    ranges = _without_void(seen, member_id, ranges)
    if not ranges:
        return None
    live.locked()
    room.records -= sum(span.last_offset - span.first_offset + 1 for span in ranges)
    first, last = ranges[0].first_offset, ranges[-1].last_offset
    records = b"".join(
        batch for header, batch in seen.batches if header.last_offset >= first and header.base_offset <= last
    )
    if room.batch_size > 0:
        ranges = list(_cut(ranges, [header.last_offset for header, _ in seen.batches], room.batch_size))
    return AcquiredBatches(records, ranges)


def _whole_batches(seen: FetchedRange, records: int) -> int:
    """Returns the last offset of the batch with which there are enough records."""
    for header, _ in seen.batches:
        records -= header.last_offset - max(header.base_offset, seen.offset) + 1
        if records <= 0:
            return header.last_offset
    return seen.next_offset - 1


def _without_void(seen: FetchedRange, member_id: str, ranges: list[AcquiredRange]) -> list[AcquiredRange]:
    """Markers of transactions, what was aborted (for readers of committed records), and holes of the log are no one's."""
    if not ranges:
        return ranges
    live = seen.live
    aborted: list[tuple[int, int]] = []
    if live.settings.committed_only:
        aborted = live.partition.log.aborted_transactions(seen.offset, seen.next_offset)
    real = [
        (header.base_offset, header.last_offset) for header, _ in data_batches(seen.batches, aborted=aborted)
    ]
    coalesced: list[AcquiredRange] = []
    void: list[AcknowledgedRange] = []
    next_real = 0
    for span in ranges:
        position = span.first_offset
        while next_real < len(real) and real[next_real][1] < position:
            next_real += 1
        for index in range(next_real, len(real)):
            first, last = real[index]
            if first > span.last_offset:
                break
            if first > position:
                void.append(AcknowledgedRange(position, first - 1, [AcknowledgeType.GAP]))
            begin, end = max(first, position), min(last, span.last_offset)
            if (
                coalesced
                and coalesced[-1].last_offset + 1 == begin
                and coalesced[-1].delivery_count == span.delivery_count
            ):
                coalesced[-1] = coalesced[-1]._replace(last_offset=end)
            else:
                coalesced.append(AcquiredRange(begin, end, span.delivery_count))
            position = end + 1
        if position <= span.last_offset:
            void.append(AcknowledgedRange(position, span.last_offset, [AcknowledgeType.GAP]))
    if void:
        live.acknowledge_gaps(member_id, void)
    return coalesced


def _cut(ranges: Iterable[AcquiredRange], ends: Sequence[int], batch_size: int) -> Iterator[AcquiredRange]:
    """Both ascend, and each end is looked at once."""
    next_end = 0
    for span in ranges:
        first = span.first_offset
        while next_end < len(ends) and ends[next_end] < span.last_offset:
            end = ends[next_end]
            if first + batch_size - 1 <= end:
                yield span._replace(first_offset=first, last_offset=end)
                first = end + 1
            next_end += 1
        yield span._replace(first_offset=first)
